"""Layouts: weights are found under every usual name and in both orientations; a state dict may stand for its module."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from learners import Assignment, CausalAttention, Easy, Fast, Ladder, Named, assert_same, gpt2, mix, random_x
from regard.adoption.adopt import adopt


def test_an_unknown_layout_lists_what_was_found_and_what_is_known():
    with pytest.raises(ValueError, match=r"parameters are weight, bias. Known are W_query.*qkv_proj.*names=\{"):
        adopt(nn.Linear(2, 3))
    with pytest.raises(ValueError, match=r"One is inside, at 0: adopt\(module.0\)"):
        adopt(nn.Sequential(Easy()))


@pytest.mark.parametrize(
    "names",
    [
        ("q_proj", "k_proj", "v_proj", "out_proj"),
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        ("to_q", "to_k", "to_v", "to_out"),
        ("query", "key", "value", "out_proj"),
        ("wq", "wk", "wv", "wo"),
        ("qkv", "proj"),
        ("in_proj", "out_proj"),
        ("c_attn", "c_proj"),
        ("to_qkv", "to_out"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("num_kv_heads", [3, 1])
def test_usual_names_are_known_and_narrow_keys_are_grouped(names, num_kv_heads):
    module = Named(names, num_kv_heads=num_kv_heads)
    layer = adopt(module)
    assert_same(module, layer, 12)
    assert layer.num_kv_heads == num_kv_heads


def test_an_output_with_its_own_dropout_is_looked_into():
    module = Named(("to_q", "to_k", "to_v", "to_out"), out=nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.5)))
    assert_same(module, adopt(module), 12)


def test_bare_parameters_are_read_as_x_times_weight():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.randn(5, 3)) for _ in range(3))

        def forward(self, x):
            return mix(x @ self.W_query, x @ self.W_key, x @ self.W_value)

    module = Bare()
    assert_same(module, adopt(module), 5)


@pytest.mark.parametrize("module, heads", [(Ladder(qkv_bias=True), 3), (CausalAttention(), 1)])
def test_a_state_dict_with_a_stored_mask_is_causal_and_bounded(module, heads):
    layer = adopt(module.state_dict(), num_heads=heads)
    assert (layer.causal, layer.context_length) == (True, 11)
    assert_same(module, layer, 5)
    assert all(p.requires_grad for p in layer.W_query.parameters())
    assert adopt(module.state_dict(), num_heads=heads, causal=False).causal is False


@pytest.mark.parametrize("kind", [Easy, Fast, Assignment])
def test_a_state_dict_of_a_known_layout_needs_no_names(kind):
    module = kind()
    assert_same(module, adopt(module.state_dict(), num_heads=2, causal=False), 10)


def test_a_state_dict_of_torch_multihead_attention_needs_no_names():
    module = nn.MultiheadAttention(10, 2, batch_first=True)
    layer, x = adopt(module.state_dict(), num_heads=2, causal=False), random_x(10, dtype=torch.float32)
    torch.testing.assert_close(layer(x), module(x, x, x)[0])


def test_a_state_dict_says_which_is_which_by_names():
    module = Named(("a", "b", "c", "d"), num_kv_heads=1, bias=True)
    state = {f"h.0.{name}": t for name, t in module.state_dict().items()}
    names = {"W_query": "h.0.a", "W_key": "h.0.b", "W_value": "h.0.c", "out_proj": "h.0.d.weight"}
    layer = adopt(state, names=names, num_heads=3, causal=False)
    assert layer.num_kv_heads == 1
    assert_same(module, layer, 12)


def test_a_gpt2_state_dict_is_read_in_its_own_orientation_with_its_stored_mask():
    module = gpt2("sdpa")
    state = {f"h.0.attn.{name}": t for name, t in module.state_dict().items()}
    names = {"qkv": "h.0.attn.c_attn", "out_proj": "h.0.attn.c_proj"}
    state["h.0.attn.bias"] = torch.ones(13, 13, dtype=torch.bool).tril().view(1, 1, 13, 13)
    layer = adopt(state, names=names, num_heads=3)
    assert (layer.causal, layer.context_length) == (True, 13)
    assert_same(module, layer, 15)


def test_square_weights_are_read_as_linear_unless_transposed_is_said():
    state = {name: torch.randn(8, 8) for name in ("wq", "wk", "wv", "wo")}
    layer = adopt(state, num_heads=2, causal=True)
    turned = adopt(state, num_heads=2, causal=True, transposed=True)
    assert layer.W_query.weight.equal(state["wq"])
    assert turned.W_query.weight.equal(state["wq"].T)
    assert turned.out_proj.weight.equal(state["wo"].T)


@pytest.mark.parametrize(
    "shapes",
    [
        {"wq": (5, 8), "wk": (5, 8), "wv": (5, 8), "wo": (8, 8)},  # d_out is out_proj's
        {"wq": (8, 8), "wk": (8, 4), "wv": (8, 4), "wo": (8, 8)},  # grouped: d_in is shared
        {"qkv": (8, 24), "proj": (8, 8)},  # three times as wide
    ],
)
def test_shapes_that_are_not_square_give_the_orientation(shapes):
    state = {name: torch.randn(shape) for name, shape in shapes.items()}
    other = {name: t.T for name, t in state.items()}
    a, b = (adopt(s, num_heads=2, causal=True) for s in (state, other))
    assert a.state_dict().keys() == b.state_dict().keys()
    for name, t in a.state_dict().items():
        assert t.equal(b.state_dict()[name])


def test_names_that_are_wrong_are_named():
    state = Easy().state_dict()
    with pytest.raises(ValueError, match="names has W_q; its keys are W_query, W_key, W_value or qkv, and out_proj"):
        adopt(state, names={"W_q": "q_linear"}, num_heads=2, causal=True)
    with pytest.raises(ValueError, match=r"asks for 'nowhere' \(qkv\), but the state dict has only q_linear.weight"):
        adopt(state, names={"qkv": "nowhere"}, num_heads=2, causal=True)
    with pytest.raises(ValueError, match="names gives W_query; it takes W_query, W_key and W_value together"):
        adopt(state, names={"W_query": "q_linear"}, num_heads=2, causal=True)
