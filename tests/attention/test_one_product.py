"""The operator with which a compiled graph multiplies by three weights that lie side by side."""

import copy

import pytest
import torch
import torch.nn.functional as F

from regard import MultiHeadAttention
from regard.attention import one_product
from regard.attention.one_product import project


def new_layer(**options) -> MultiHeadAttention:
    return MultiHeadAttention(7, 12, context_length=13, dropout=0.0, num_heads=3, **options).double()


def three(layer):
    return [layer.W_query.weight, layer.W_key.weight, layer.W_value.weight]


def test_weights_in_their_room_are_multiplied_without_a_copy():
    layer, x = new_layer(), torch.randn(2, 5, 7, dtype=torch.float64)
    room = one_product.as_room(*three(layer))
    assert room.data_ptr() == layer.W_query.weight.data_ptr()
    torch.testing.assert_close(room, torch.cat(three(layer)))
    torch.testing.assert_close(project(x, *three(layer), None), F.linear(x, torch.cat(three(layer))))


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_weight_that_moved_out_counts_as_it_is_now(moved):
    layer, x = new_layer(), torch.randn(2, 5, 7, dtype=torch.float64)
    three(layer)[moved].data = torch.randn_like(three(layer)[moved])
    torch.testing.assert_close(project(x, *three(layer), None), F.linear(x, torch.cat(three(layer))))


def test_the_room_of_a_layer_that_is_gone_is_nobodys():
    layer, x = new_layer(), torch.randn(2, 5, 7, dtype=torch.float64)
    weights = [w.detach().clone() for w in three(layer)]
    before = len(one_product.ROOMS)
    del layer
    assert len(one_product.ROOMS) < before
    torch.testing.assert_close(project(x, *weights, None), F.linear(x, torch.cat(weights)))


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 7), (5, 7), (1, 1, 7)], ids=str)
def test_the_operator_keeps_torchs_rules_for_operators(qkv_bias, shape):
    layer = new_layer(qkv_bias=qkv_bias)
    bias = torch.randn(36, dtype=torch.float64, requires_grad=True) if qkv_bias else None
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weights = [w.detach() for w in three(layer)]
    torch.library.opcheck(
        torch.ops.regard.project.default, (x.detach(), *weights, None if bias is None else bias.detach())
    )
    grad = torch.randn(*shape[:-1], 36, dtype=torch.float64)
    torch.library.opcheck(torch.ops.regard.project_back.default, (grad, *weights))
    torch.library.opcheck(torch.ops.regard.project_back_both.default, (grad, x.detach(), *weights))
    assert torch.autograd.gradcheck(lambda *a: project(*a), (x, *three(layer), bias))


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True}, {"num_kv_heads": 1, "rotary": True}], ids=str)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_layer_gives_the_eager_outputs_and_gradients_through_it(monkeypatch, options, backend):
    asked = []
    monkeypatch.setattr(one_product, "_looks_as_it_runs", lambda *told: asked.append(told) or True)  # as on a GPU
    torch._dynamo.reset()
    layer = new_layer(**options)
    plain = copy.deepcopy(layer)
    run = torch.compile(layer, backend=backend, fullgraph=True)
    for T in (5, 11, 13):
        x = torch.randn(2, T, 7, dtype=torch.float64, requires_grad=True)
        names, parameters = zip(*layer.named_parameters(), strict=True)
        out, expected = run(x), plain(x)
        torch.testing.assert_close(out, expected)
        found = torch.autograd.grad(out.square().sum(), [x, *parameters])
        right = torch.autograd.grad(expected.square().sum(), [x, *plain.parameters()])
        for name, a, b in zip(("x", *names), found, right, strict=True):
            torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")
    assert asked
    with torch.no_grad():
        layer.W_key.weight.data = torch.randn_like(layer.W_key.weight)  # moved out of the room
        plain.W_key.weight.copy_(layer.W_key.weight)
        torch.testing.assert_close(run(x), plain(x))


def test_frozen_weights_cost_no_product(monkeypatch):
    monkeypatch.setattr(one_product, "as_room", lambda *weights: asked.append("room") or torch.cat(weights))
    layer, x, asked = new_layer(), torch.randn(2, 5, 7, dtype=torch.float64, requires_grad=True), []
    for p in three(layer):
        p.requires_grad_(False)
    found = torch.autograd.grad(project(x, *three(layer), None).square().sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(F.linear(x, torch.cat(three(layer))).square().sum(), x))
    assert asked == ["room", "room"]
    names = set()

    class Heard(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.add(str(func))
            return func(*args, **(kwargs or {}))

    out = project(x, *three(layer), None)
    with Heard():
        out.sum().backward()
    assert "regard.project_back.default" in names
    assert "regard.project_back_both.default" not in names


def test_second_derivatives_are_refused_not_left_out():
    layer, x = new_layer(), torch.randn(2, 5, 7, dtype=torch.float64, requires_grad=True)
    out = project(x, *three(layer), None).square().sum()
    with pytest.raises(RuntimeError, match=r"no second derivatives; call the layer as it is, without torch\.compile"):
        torch.autograd.grad(out, x, create_graph=True)


def test_the_parameters_of_a_copy_for_another_gpu_are_no_parameters():
    layer, x = new_layer(qkv_bias=True), torch.randn(2, 5, 7, dtype=torch.float64)
    right = layer(x)
    for module in (layer.W_query, layer.W_key, layer.W_value):
        for kind in ("weight", "bias"):  # as nn.DataParallel makes its copies
            held = module._parameters.pop(kind).detach().clone().requires_grad_()
            module.__dict__[kind] = held
    torch.testing.assert_close(layer(x), right)
