"""What the layer refuses, each time with the rule, the values and the remedy."""

import math

import pytest
import torch

from helpers import says_it_ourselves
from regard import (
    Cache,
    MultiHeadAttention,
    causal,
    padding,
)

SIZES = {"d_in": 7, "d_out": 12, "context_length": 13, "dropout": 0.0, "num_heads": 3}


def new_layer(**options):
    return MultiHeadAttention(**SIZES | options).double()


def new_x(B=2, T=5, width=7, dtype=torch.float64):
    return torch.randn(B, T, width, dtype=dtype)


REFUSED = {
    "d_in": ({"d_in": 0}, r"d_in \(0\) must be a whole number of at least 1"),
    "d_out": ({"d_out": -12}, r"d_out \(-12\) must be a whole number of at least 1"),
    "num_heads": ({"num_heads": 0}, r"num_heads \(0\) must be a whole number of at least 1"),
    "bool heads": ({"num_heads": True}, r"num_heads \(True\) must be a whole number of at least 1"),
    "num_kv_heads": ({"num_kv_heads": 0}, r"num_kv_heads \(0\) must be a whole number of at least 1"),
    "context_length": ({"context_length": 0}, r"context_length \(0\) must be a whole number of at least 1"),
    "dropout 1": ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1; 0.1 is usual, 0.0 is none"),
    "dropout -": ({"dropout": -0.1}, r"dropout \(-0.1\) must be at least 0 and below 1"),
    "dropout nan": ({"dropout": math.nan}, r"dropout \(nan\) must be at least 0 and below 1"),
    "division": (
        {"d_in": 770, "d_out": 770, "num_heads": 12},
        r"d_out \(770\) must be divisible by num_heads \(12\); try 768 or 780",
    ),
    "small": ({"d_out": 2}, r"d_out \(2\) must be divisible by num_heads \(3\); try 3, or 2 heads$"),
    "sharing": ({"num_kv_heads": 2}, r"num_heads \(3\) must be divisible by num_kv_heads \(2\); try one of 1, 3"),
    "more": ({"num_kv_heads": 6}, r"num_heads \(3\) must be divisible by num_kv_heads \(6\); try one of 1, 3"),
    "window": ({"window": 0}, r"window \(0\) must be a whole number of at least 1; 1 sees only oneself"),
    "scale 0": ({"scale": 0.0}, r"scale \(0.0\) must be above 0; 1/√head_dim = 0.5 is usual"),
    "scale inf": ({"scale": math.inf}, r"scale \(inf\) must be above 0; 1/√head_dim = 0.5 is usual"),
    "base": ({"rotary": -1.0}, r"the rotary base \(-1.0\) must be above 1; 10000 is usual"),
    "odd": (
        {"rotary": True, "d_out": 9},
        r"rotary turns channels in pairs, but head_dim \(3\) is odd; choose an even head_dim",
    ),
    "both": ({"rotary": True, "alibi": True}, r"rotary and alibi are two answers to one question.*; choose one"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_cannot_be_says_the_rule_the_values_and_the_remedy(name):
    options, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**SIZES | options)


@says_it_ourselves
@pytest.mark.parametrize("name", ["d_in", "d_out", "num_heads", "context_length"])
def test_a_size_that_is_not_whole_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} \(3.0\) must be a whole number of at least 1"):
        MultiHeadAttention(**SIZES | {name: 3.0})


@says_it_ourselves
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (2, 5, 9),
            r"x has width 9 but this layer was built with d_in=7; project it first, or build the layer with d_in=9",
        ),
        (
            (2, 17, 7),
            r"17 tokens do not fit context_length=13; pass at most 13, "
            r"or build the layer with context_length=17 or more",
        ),
        ((5, 7), r"x must be \(B, T, d_in\), but has shape \(5, 7\); add a batch axis with x\[None\]"),
    ],
)
def test_an_x_that_does_not_fit_says_why(shape, message):
    with pytest.raises(ValueError, match=message):
        new_layer()(torch.randn(shape, dtype=torch.float64))


@says_it_ourselves
@pytest.mark.parametrize("shape", [(2, 11, 9), (3, 11, 7), (11, 7)])
def test_a_source_that_does_not_fit_says_what_would(shape):
    sizes = ", ".join(map(str, shape))
    message = rf"source has shape \({sizes}\) but must be \(B=2, S, d_in=7\); project it to the layer's width"
    with pytest.raises(ValueError, match=message):
        new_layer(causal=False)(new_x(), torch.randn(shape, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"source is another sequence, where causal means nothing; .* cross-attention with causal=False"),
        (
            {"window": 3, "alibi": True},
            r"where causal and window and alibi means nothing; .* causal=False, window=None, alibi=False",
        ),
        (
            {"rotary": True, "causal": False},
            r"where rotary means nothing; build a layer for cross-attention with rotary=False",
        ),
    ],
)
def test_what_needs_one_sequence_is_refused_across_two(options, message):
    with pytest.raises(ValueError, match=message):
        new_layer(**options)(new_x(), new_x())


def test_a_cache_of_a_source_is_refused():
    layer = new_layer(causal=False)
    with (
        pytest.raises(ValueError, match="a cache holds keys of x, not of source; pass one or the other"),
        torch.no_grad(),
    ):
        layer(new_x(), new_x(), cache=Cache.of(layer, batch=2)[0])


@pytest.mark.parametrize(
    "positions", [torch.arange(6), torch.arange(4), torch.arange(15).view(3, 5), torch.tensor([3])]
)
def test_positions_that_do_not_fit_are_refused(positions):
    with pytest.raises(ValueError, match=r"positions has shape \(.*\) but x has B=2, T=5; give \(5,\) or \(2, 5\)"):
        new_layer(rotary=True)(new_x(), positions=positions)


@says_it_ourselves
def test_a_wrong_shape_is_said_before_a_wrong_dtype():
    with pytest.raises(ValueError, match=r"x must be \(B, T, d_in\), but has shape \(5, 7\)"):
        new_layer()(torch.randn(5, 7, dtype=torch.float16))


@says_it_ourselves
def test_inputs_that_are_no_tensors_are_refused_by_name():
    layer, x = new_layer(causal=False), new_x()
    with pytest.raises(ValueError, match=r"x must be a tensor, not list; pass torch\.tensor\(x\)"):
        layer(x.tolist())
    with pytest.raises(ValueError, match=r"source must be a tensor, not ndarray; pass torch\.as_tensor\(source\)"):
        layer(x, x.numpy())
    with pytest.raises(ValueError, match=r"positions must be a tensor, not list; pass torch\.tensor\(positions\)"):
        new_layer(rotary=True)(x, positions=[0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"key lengths, not ndarray; pass torch\.as_tensor\(mask\), True = may attend"):
        layer(x, mask=torch.ones(5, 5, dtype=torch.bool).numpy())


@says_it_ourselves
def test_a_cache_of_all_layers_says_how_to_pass_the_part_of_one():
    layer = new_layer()
    with pytest.raises(
        ValueError, match=r"is for all layers of a model; pass the part of this layer: cache=cache\[0\]"
    ):
        layer(new_x(), cache=Cache.of(layer, batch=2))


@pytest.mark.parametrize(
    "wrap", [padding, lambda lengths: ~padding(lengths), lambda lengths: causal() | padding(lengths)]
)
def test_lengths_beyond_the_keys_are_refused_without_a_cache(wrap):
    layer, source = new_layer(causal=False), new_x(T=11)
    layer(new_x(), mask=wrap([5, 0]))
    layer(new_x(), source, mask=wrap([11, 7]))
    with pytest.raises(ValueError, match=r"lengths \(5, 99\) count keys, but there are S=5; give at most 5"):
        layer(new_x(), mask=wrap(torch.tensor([5, 99])))
    with pytest.raises(ValueError, match=r"lengths \(12, 7\) count keys, but there are S=11; give at most 11"):
        layer(new_x(), source, mask=wrap([12, 7]))


def test_with_a_cache_lengths_may_count_keys_that_are_still_to_come():
    layer = new_layer()
    with torch.no_grad():
        first = layer(new_x(), mask=[7, 13], cache=Cache.of(layer, batch=2)[0])
    assert first.shape == (2, 5, 12)


def test_the_old_keyword_of_cross_attention_works_and_says_its_new_name():
    layer, x, source = new_layer(causal=False), new_x(), new_x(T=11)
    with pytest.warns(DeprecationWarning, match=r"context= is source= now; the old keyword goes in 0\.3"):
        old = layer(x, context=source)
    torch.testing.assert_close(old, layer(x, source=source), rtol=0, atol=0)
