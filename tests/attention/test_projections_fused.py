"""Three projections as one product: the same numbers and gradients, and only where nothing can tell the difference."""

import copy

import pytest
import torch
from torch import nn

from regard import MultiHeadAttention
from regard.attention import projections

EXACT = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def products(monkeypatch):
    """Fuse on the CPU too; how many products each call of project_qkv makes."""
    monkeypatch.setattr(projections, "_is_faster_as_one", lambda x: True)
    counts, linear, fused = [], projections.linear, projections.F.linear
    monkeypatch.setattr(projections, "linear", lambda *args: counts.append("by itself") or linear(*args))
    monkeypatch.setattr(projections.F, "linear", lambda *args: counts.append("linear") or fused(*args))
    return counts


def new_layer(**options):
    sizes = {"d_in": 7, "d_out": 12, "context_length": 13, "dropout": 0.0, "num_heads": 3}
    return MultiHeadAttention(**sizes | options).double()


def new_x(B=2, T=5):
    return torch.randn(B, T, 7, dtype=torch.float64, requires_grad=True)


def project(layer, x, source=None):
    return projections.project_qkv(layer.W_query, layer.W_key, layer.W_value, x, source)


def gradients(layer, x):
    return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])


@pytest.mark.parametrize("options", [{}, {"qkv_bias": True}, {"num_kv_heads": 1}], ids=str)
def test_one_product_equals_three_in_values_and_gradients(options, products):
    layer, x = new_layer(**options), new_x()
    q, k, v = project(layer, x)
    assert products == ["linear"]
    torch.testing.assert_close((q, k, v), (layer.W_query(x), layer.W_key(x), layer.W_value(x)), **EXACT)
    found = gradients(layer, x)
    layer.W_query.register_forward_hook(lambda *_: None)  # a hook must fire, so three products run
    torch.testing.assert_close(found, gradients(layer, x), **EXACT)
    assert products.count("by itself") == 3 + 2  # and out_proj, in both


@pytest.mark.parametrize("name", ["W_query", "W_key", "W_value"])
def test_a_hook_an_adapter_or_a_replaced_forward_makes_three_products(name, products):
    x = new_x()
    for change in (
        lambda layer, m: m.register_forward_hook(lambda *_: None),
        lambda layer, m: m.register_full_backward_hook(lambda *_: None),
        lambda layer, m: setattr(layer, name, nn.Sequential(m)),
        lambda layer, m: setattr(m, "forward", lambda x: 3 * x @ m.weight.mT),
    ):
        layer = new_layer()
        change(layer, getattr(layer, name))
        products.clear()
        project(layer, x)
        assert products.count("by itself") == 3


def test_projections_of_which_only_some_have_a_bias_are_three_products(products):
    layer, x = new_layer(), new_x()
    layer.W_key = nn.Linear(7, 12).double()
    torch.testing.assert_close(project(layer, x)[1], layer.W_key(x), **EXACT)
    assert products.count("by itself") == 3


def test_cross_attention_projects_keys_and_values_of_the_source(products):
    layer, x, source = new_layer(causal=False), new_x(), new_x(T=11)
    q, k, v = project(layer, x, source)
    torch.testing.assert_close((q, k, v), (layer.W_query(x), layer.W_key(source), layer.W_value(source)), **EXACT)


def test_one_product_is_for_a_gpu():
    assert not projections._is_faster_as_one(torch.empty(1, device="meta"))
    assert not projections._is_faster_as_one(torch.empty(1))
    with torch._subclasses.FakeTensorMode():
        assert projections._is_faster_as_one(torch.empty(1, device="cuda"))


def test_weights_too_large_to_copy_are_three_products(products, monkeypatch):
    layer = new_layer()
    monkeypatch.setattr(projections, "COPIED", 3 * layer.W_key.weight.nbytes - 1)
    project(layer, new_x())
    assert products.count("by itself") == 3


@pytest.mark.parametrize("frozen", [("W_query",), ("W_key", "W_value")], ids=str)
def test_frozen_projections_get_no_gradient(frozen, products):
    layer, x = new_layer(), new_x()
    for name in frozen:
        getattr(layer, name).requires_grad_(False)
    layer(x).sum().backward()
    for name in ("W_query", "W_key", "W_value"):
        assert (getattr(layer, name).weight.grad is None) == (name in frozen)


def test_training_moves_each_weight_as_three_products_would(products):
    layer = new_layer(qkv_bias=True)
    three = copy.deepcopy(layer)
    three.W_value.register_forward_hook(lambda *_: None)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (layer, three)]
    for _ in range(3):
        x = new_x()
        for m, optimizer in zip((layer, three), optimizers, strict=True):
            optimizer.zero_grad()
            m(x).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(list(layer.parameters()), list(three.parameters()))  # AdamW magnifies rounding


def test_second_derivatives_go_through(products):
    layer, x = new_layer(qkv_bias=True, d_out=4, num_heads=2), new_x(1, 3)  # small: it differentiates by each number

    def run(x, *weights):
        return torch.cat(project(layer, x), -1).square()

    weights = [layer.W_query.weight, layer.W_key.weight, layer.W_value.weight]
    assert torch.autograd.gradcheck(run, (x, *weights))
    assert torch.autograd.gradgradcheck(run, (x, *weights))
    assert "by itself" not in products
