"""Linear layers in 16-bit dtypes that the CPU emulates: float32 inside, 16-bit outside; hooks and adapters work."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from regard import Cache, MultiHeadAttention
from regard.attention import numerics
from regard.attention.projections import is_plain, linear, normalize


@pytest.fixture
def emulated(monkeypatch):
    """A CPU without native support for bfloat16."""
    monkeypatch.setattr(numerics, "EMULATED", frozenset({torch.bfloat16}))


def layer_and_twin(**options):
    """A bfloat16 layer, and the same weights in float32."""
    sizes = {"d_in": 7, "d_out": 12, "context_length": 13, "dropout": 0.0, "num_heads": 3}
    layer = MultiHeadAttention(**sizes | options).bfloat16()
    twin = MultiHeadAttention(**sizes | options)
    twin.load_state_dict(layer.state_dict())
    return layer, twin


@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "qk_norm": True}, {"causal": False}], ids=str)
def test_an_emulated_layer_computes_in_float32_and_rounds_once(options, emulated):
    layer, twin = layer_and_twin(**options)
    x = torch.randn(2, 5, 7).bfloat16()
    out, weights = layer(x, return_weights=True)
    right, right_weights = twin(x.float(), return_weights=True)
    torch.testing.assert_close(out, right.bfloat16(), rtol=0, atol=0)
    torch.testing.assert_close(weights, right_weights.bfloat16(), rtol=0, atol=0)
    torch.testing.assert_close(layer(x), twin(x.float()).bfloat16(), rtol=0, atol=0)


def test_an_emulated_layer_reads_a_source_too(emulated):
    layer, twin = layer_and_twin(causal=False)
    x, source = torch.randn(2, 5, 7).bfloat16(), torch.randn(2, 11, 7).bfloat16()
    torch.testing.assert_close(layer(x, source), twin(x.float(), source.float()).bfloat16(), rtol=0, atol=0)


def test_gradients_of_an_emulated_layer_are_16_bit_and_those_of_float32(emulated):
    layer, twin = layer_and_twin(qkv_bias=True)
    x = torch.randn(2, 5, 7).bfloat16()
    above = torch.randn(2, 5, 12).bfloat16()
    layer(x).backward(above)
    twin(x.float()).backward(above.float())
    for ours, right in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, right.grad.bfloat16(), rtol=0.01, atol=1e-3)


def test_a_hook_on_an_emulated_projection_fires_with_16_bit_tensors(emulated):
    layer, _ = layer_and_twin()
    seen = []
    layer.W_key.register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
    assert layer(torch.randn(2, 5, 7).bfloat16()).dtype is torch.bfloat16
    assert seen == [(torch.bfloat16, torch.bfloat16)]


def test_a_cache_of_an_emulated_layer_stays_16_bit(emulated):
    layer, twin = layer_and_twin()
    x = torch.randn(2, 5, 7).bfloat16()
    cache = Cache.of(layer, batch=2)
    with torch.no_grad():
        out = layer(x, cache=cache[0])
        assert cache.keys.dtype is torch.bfloat16
        torch.testing.assert_close(out.float(), twin(x.float()), rtol=0.05, atol=0.05)


def test_linear_with_native_support_is_the_module_itself():
    module, x = nn.Linear(7, 5), torch.randn(2, 3, 7)
    torch.testing.assert_close(linear(module, x), module(x), rtol=0, atol=0)


def test_a_norm_is_computed_in_the_wider_dtype():
    norm = nn.RMSNorm(5)
    nn.init.uniform_(norm.weight)
    t = torch.randn(2, 3, 5).bfloat16()
    torch.testing.assert_close(normalize(norm, t), norm(t.float()).bfloat16(), rtol=0, atol=0)
    narrow = nn.RMSNorm(5).bfloat16()
    wide = torch.randn(2, 3, 5)
    torch.testing.assert_close(normalize(narrow, wide), nn.RMSNorm(5)(wide), rtol=0, atol=0)


def test_plain_is_a_linear_that_nobody_has_changed():
    assert is_plain(nn.Linear(3, 5))
    assert is_plain(nn.Linear(3, 5, bias=False))
    assert not is_plain(None)
    assert not is_plain(nn.Sequential(nn.Linear(3, 5)))


def give_plain_tensor(module):
    del module.weight
    module.weight = torch.ones(5, 3)


CHANGES = {
    "forward hook": lambda m: m.register_forward_hook(lambda *_: None),
    "pre-hook": lambda m: m.register_forward_pre_hook(lambda *_: None),
    "backward hook": lambda m: m.register_full_backward_hook(lambda *_: None),
    "own forward": lambda m: setattr(m, "forward", lambda x: x),
    "weight that is no parameter": give_plain_tensor,
    "parametrization": lambda m: nn.utils.parametrizations.weight_norm(m),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_linear_is_not_plain(change):
    module = nn.Linear(3, 5)
    CHANGES[change](module)
    assert not is_plain(module)


def test_a_hook_on_all_modules_makes_none_plain():
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not is_plain(nn.Linear(3, 5))
    finally:
        handle.remove()
    assert is_plain(nn.Linear(3, 5))


def test_weights_of_another_dtype_are_refused_with_the_three_ways_out(without_shape_checks):
    layer = MultiHeadAttention(6, 6, 8, 0.0, 2)
    with pytest.raises(
        ValueError,
        match=r"x is bfloat16 but this layer's weights are float32; "
        r"use x.to\(torch.float32\), layer.to\(torch.bfloat16\), or torch.autocast",
    ):
        layer(torch.randn(2, 5, 6, dtype=torch.bfloat16))


def test_it_loads_where_torch_was_built_without_onednn():
    code = (
        "import torch; torch.backends.mkldnn.is_available = lambda: False; "
        "torch.ops.mkldnn = None; import regard; "
        "print(regard.MultiHeadAttention(4, 4, 8, 0.0, 2)(torch.ones(1, 3, 4)).shape)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "torch.Size([1, 3, 4])", found.stderr


def test_tensors_in_the_place_of_emulated_weights_are_multiplied_in_float32(emulated):
    layer, twin = layer_and_twin()
    x = torch.randn(2, 5, 7).bfloat16()
    given = {name: p.detach().clone() for name, p in layer.named_parameters()}
    out = torch.func.functional_call(layer, given, (x,))
    torch.testing.assert_close(out, twin(x.float()).bfloat16(), rtol=0, atol=0)
