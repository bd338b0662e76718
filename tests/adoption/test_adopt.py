"""adopt(): the layers that it takes over as they are, and what it asks for."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from learners import TRIL, Assignment, CausalAttention, Easy, Fast, Ladder, assert_same, random_x
from regard.adoption.adopt import adopt
from regard.attention.layer import MultiHeadAttention


def test_a_layer_of_ours_is_copied():
    layer = MultiHeadAttention(8, 8, 11, 0.1, 2, rotary=True, window=3).eval()
    copied = adopt(layer)
    x = random_x(8, dtype=torch.float32)
    assert copied is not layer
    torch.testing.assert_close(copied(x), layer(x))


@pytest.mark.usefixtures("without_shape_checks")
def test_a_class_is_not_an_instance():
    with pytest.raises(ValueError, match=r"pass an instance: adopt\(Easy\(...\)\)"):
        adopt(Easy)
    with pytest.raises(ValueError, match="adopt\\(\\) takes a module or a state dict, not int"):
        adopt(7)
    with pytest.raises(ValueError, match=r"not str; of a file, pass safetensors\.torch\.load_file\(…\)"):
        adopt("layer.safetensors")


def test_half_precision_that_overflowed_at_minus_1e9_runs_after_adoption():
    module = Assignment().half().eval()
    x = random_x(10, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="without overflow"):
        module(x, TRIL)
    layer = adopt(module, causal=True)
    expected = copy.deepcopy(module).double()(x.double(), TRIL)[0]
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_the_documents_layer_is_taken_over_with_everything_it_knows(qkv_bias):
    module = Ladder(qkv_bias=qkv_bias)
    layer = adopt(module)
    assert_same(module, layer, 5)
    assert (layer.causal, layer.context_length, layer.dropout, layer.num_heads) == (True, 11, 0.1, 3)
    assert (layer.W_query.bias is not None) is qkv_bias
    assert "mask" not in layer.state_dict()


def test_a_causal_single_head_is_found_to_be_causal():
    module = CausalAttention()
    layer = adopt(module)
    assert_same(module, layer, 5)
    assert (layer.causal, layer.dropout, layer.context_length) == (True, 0.3, 11)


def test_a_context_of_one_token_is_enough():
    module = CausalAttention(context_length=1)
    layer = adopt(module)
    x = random_x(5, T=1, dtype=torch.float32)
    torch.testing.assert_close(layer.eval()(x), module.eval()(x))
    assert layer.context_length == 1


@pytest.mark.parametrize("kind", [Easy, Fast, Assignment])
def test_layers_without_a_mask_are_found_to_see_everything(kind):
    module = kind()
    layer = adopt(module)
    assert_same(module, layer, 10)
    assert not layer.causal
    assert layer.dropout == 0.0


@pytest.mark.parametrize("kind", [Fast, Assignment])
def test_a_layer_that_takes_a_mask_can_be_adopted_as_causal(kind):
    module = kind()
    assert_same(module, adopt(module, causal=True), 10, TRIL)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_torch_multihead_attention_is_taken_over_batch_first(batch_first, bias):
    module = nn.MultiheadAttention(10, 2, dropout=0.2, bias=bias, batch_first=batch_first)
    if bias:  # they start at 0, where a swap could not be seen
        nn.init.normal_(module.in_proj_bias)
    layer = adopt(module).double().eval()
    assert (layer.causal, layer.dropout) == (False, 0.2)
    theirs, x = copy.deepcopy(module).double().eval(), random_x(10)
    given = x if batch_first else x.transpose(0, 1)
    out = theirs(given, given, given)[0]
    torch.testing.assert_close(layer(x), out if batch_first else out.transpose(0, 1))


def test_torch_multihead_attention_can_be_adopted_as_causal():
    module = nn.MultiheadAttention(10, 2, batch_first=True).double().eval()
    x = random_x(10)
    torch.testing.assert_close(adopt(module, causal=True)(x), module(x, x, x, attn_mask=TRIL == 0)[0])


def test_a_state_dict_must_say_heads_and_causality():
    state = Easy().state_dict()
    with pytest.raises(ValueError, match="the state dict does not say how many heads"):
        adopt(state, causal=True)
    with pytest.raises(ValueError, match=r"pass causal=True .* or causal=False"):
        adopt(state, num_heads=2)
