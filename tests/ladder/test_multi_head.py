"""Rung 4: several heads; and the layer to ship computes the same."""

import pytest
import torch

import regard
from regard import ladder, trace


def test_stacked_single_heads_are_the_multi_head_layer_before_out_proj():
    wrapper = ladder.MultiHeadAttentionWrapper(d_in=5, d_out=3, context_length=11, dropout=0.0, num_heads=2)
    layer = ladder.MultiHeadAttention(d_in=5, d_out=6, context_length=11, dropout=0.0, num_heads=2)
    with torch.no_grad():
        for name in ("W_query", "W_key", "W_value"):
            stacked = torch.cat([getattr(head, name).weight for head in wrapper.heads])
            getattr(layer, name).weight.copy_(stacked)
    x = torch.randn(2, 7, 5)
    torch.testing.assert_close(trace(layer, x)["concat"], wrapper(x))


def test_the_layer_that_is_read_is_the_layer_that_ships():
    torch.manual_seed(7)
    read = ladder.MultiHeadAttention(5, 6, context_length=11, dropout=0.0, num_heads=2, qkv_bias=True)
    torch.manual_seed(7)
    shipped = regard.MultiHeadAttention(5, 6, context_length=11, dropout=0.0, num_heads=2, qkv_bias=True)
    x = torch.randn(3, 7, 5)
    torch.testing.assert_close(shipped(x), read(x))
    shipped.load_state_dict(read.state_dict())
    read.load_state_dict(shipped.state_dict())


def test_read_and_shipped_layer_agree_step_by_step():
    read = ladder.MultiHeadAttention(5, 6, context_length=11, dropout=0.0, num_heads=2).eval()
    shipped = regard.MultiHeadAttention(5, 6, context_length=11, dropout=0.0, num_heads=2).eval()
    shipped.load_state_dict(read.state_dict())
    x = torch.randn(3, 7, 5)
    a, b = trace(read, x), trace(shipped, x)
    assert [n for n in a.names if n != "dropout"] == b.names
    for name in b.names:
        torch.testing.assert_close(a[name], b[name], msg=lambda text, name=name: f"{name}: {text}")


def test_shapes_are_those_of_the_lesson():
    t = trace(ladder.MultiHeadAttention(768, 768, 128, 0.0, 12), torch.randn(4, 100, 768))
    shapes = {
        "x": (4, 100, 768),
        "queries": (4, 100, 768),
        "split": (4, 100, 12, 64),
        "transpose": (4, 12, 100, 64),
        "scores": (4, 12, 100, 100),
        "weights": (4, 12, 100, 100),
        "context": (4, 12, 100, 64),
        "back": (4, 100, 12, 64),
        "concat": (4, 100, 768),
        "out": (4, 100, 768),
    }
    assert {name: tuple(t[name].shape) for name in shapes} == shapes


def test_scores_are_divided_by_the_root_of_head_dim_not_of_the_width():
    t = trace(ladder.MultiHeadAttention(5, 6, 11, 0.0, 2), torch.randn(1, 7, 5))
    torch.testing.assert_close(t["scaled"], t["mask"] / 3**0.5)


def test_width_that_does_not_divide_says_what_would():
    with pytest.raises(ValueError, match=r"d_out \(770\) must be divisible by num_heads \(12\); try 768 or 780"):
        ladder.MultiHeadAttention(770, 770, 64, 0.0, 12)
    with pytest.raises(ValueError, match=r"d_out \(5\) must be divisible by num_heads \(12\); try 12"):
        ladder.MultiHeadAttention(5, 5, 64, 0.0, 12)
