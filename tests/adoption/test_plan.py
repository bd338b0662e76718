"""The layer that is built from a plan: dtype, frozen weights, packed projections, shapes that do not fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from learners import Easy, Fast, Ladder, Named, SelfAttention, assert_same
from regard.adoption.adopt import adopt


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_and_training_mode_are_kept(dtype):
    module = Ladder().to(dtype).eval()
    layer = adopt(module)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    assert not layer.training
    assert adopt(module.train()).training
    assert layer.W_key.weight.equal(module.W_key.weight)


@pytest.mark.parametrize("head_by_head", [False, True])
def test_frozen_weights_stay_frozen_and_the_others_do_not(head_by_head):
    module = Fast(head_by_head=head_by_head)
    module.qkv_proj.weight.requires_grad_(False)
    with torch.no_grad():  # the caller's own mode must not freeze the rest
        layer = adopt(module)
    frozen = [name for name, p in layer.named_parameters() if not p.requires_grad]
    assert frozen == ["W_query.weight", "W_key.weight", "W_value.weight"]


def test_the_weights_are_copies():
    module = Ladder()
    layer = adopt(module)
    before = layer.out_proj.weight.clone()
    with torch.no_grad():
        module.out_proj.weight.zero_()
    assert layer.out_proj.weight.equal(before)


@pytest.mark.parametrize("heads", [3, 0])
def test_a_number_of_heads_that_cannot_be_is_refused(heads):
    with pytest.raises(ValueError, match=rf"num_heads \({heads}\)"):
        adopt(Easy().state_dict(), num_heads=heads, causal=True)


def test_weights_of_several_kinds_are_refused():
    module = Easy()
    module.q_linear.double()
    with pytest.raises(ValueError, match=r"several kinds \(torch.float32 on cpu, torch.float64 on cpu\)"):
        adopt(module)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_a_single_head_without_out_proj_gets_a_frozen_identity(qkv_bias):
    module = SelfAttention(qkv_bias=qkv_bias)
    layer = adopt(module)
    assert_same(module, layer, 5)
    assert (layer.causal, layer.num_heads, layer.context_length) == (False, 1, None)
    assert layer.out_proj.weight.equal(torch.eye(3))
    assert layer.out_proj.bias.equal(torch.zeros(3))
    assert not layer.out_proj.weight.requires_grad
    assert layer.W_query.weight.requires_grad


def test_a_projection_packed_head_by_head_is_put_in_order():
    module = Fast(d_model=12, num_heads=3, head_by_head=True)
    assert_same(module, adopt(module), 12)


def test_a_bias_that_only_some_projections_have_is_zero_and_frozen_elsewhere():
    module = Named(("q_proj", "k_proj", "v_proj", "out_proj"), bias=True)
    module.k_proj = nn.Linear(12, 12, bias=False)
    layer = adopt(module)
    assert_same(module, layer, 12)
    assert layer.W_key.bias.equal(torch.zeros(12))
    assert not layer.W_key.bias.requires_grad
    assert layer.W_value.bias.requires_grad


@pytest.mark.parametrize(
    "shapes, rule",
    [
        ({"wq": (8, 8), "wk": (8, 5), "wv": (8, 8), "wo": (8, 8)}, r"wk \(8, 5\).*read from one width, d_in"),
        ({"wq": (8, 8), "wk": (3, 8), "wv": (3, 8), "wo": (8, 8)}, r"wk \(3, 8\).*multiple of head_dim \(4\)"),
        ({"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (5, 8)}, r"wo \(5, 8\).*= \(8, 8\)"),
        ({"qkv": (23, 8), "wo": (8, 8)}, r"qkv \(23, 8\).*the rows of qkv \(23\)"),
        ({"qkv": (2, 3, 8), "wo": (8, 8)}, r"qkv is \(2, 3, 8\), torch.float32; adopt\(\) takes matrices"),
        ({"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wq.bias": (3,), "wo": (8, 8)}, r"wq.bias \(3\); a bias must be"),
    ],
)
def test_shapes_that_do_not_fit_are_listed_by_name(shapes, rule):
    with pytest.raises(ValueError, match=rule):
        adopt({name: torch.randn(shape) for name, shape in shapes.items()}, num_heads=2, causal=True, transposed=False)


def test_a_packed_bias_of_the_wrong_length_is_listed_by_name():
    state = {"qkv.weight": torch.randn(24, 8), "qkv.bias": torch.randn(23), "proj.weight": torch.randn(8, 8)}
    with pytest.raises(ValueError, match=r"qkv.bias \(23\); a bias must be as long as its projection is wide"):
        adopt(state, num_heads=2, causal=True, transposed=False)
