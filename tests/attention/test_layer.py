import copy
import math

import pytest
import torch

from helpers import Textbook, paths_taken
from helpers import layer_by_hand as by_hand
from regard import (
    MultiHeadAttention,
    Rotary,
    alibi_slopes,
    attend_in_steps,
    causal,
    documents,
    padding,
    trace,
    window,
)

SIZES = {"d_in": 7, "d_out": 12, "context_length": 13, "dropout": 0.0, "num_heads": 3}
EXACT = {"rtol": 1e-9, "atol": 1e-11}


def new_layer(**options):
    return MultiHeadAttention(**SIZES | options).double()


def new_x(B=2, T=5, width=7, dtype=torch.float64):
    return torch.randn(B, T, width, dtype=dtype)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_the_same_seed_gives_the_textbooks_layer(qkv_bias):
    """Weights, outputs and the gradients of every parameter, by the same names."""
    torch.manual_seed(5)
    book = Textbook(**SIZES, qkv_bias=qkv_bias)
    torch.manual_seed(5)
    ours = MultiHeadAttention(**SIZES, qkv_bias=qkv_bias)
    torch.testing.assert_close(dict(ours.named_parameters()), dict(book.named_parameters()), rtol=0, atol=0)
    book, ours, x = book.double(), ours.double(), new_x()
    outs = book(x), ours(x)
    torch.testing.assert_close(outs[1], outs[0], **EXACT)
    for out in outs:
        out.sin().sum().backward()
    gradients = [{name: p.grad for name, p in layer.named_parameters()} for layer in (ours, book)]
    torch.testing.assert_close(*gradients, **EXACT)


@pytest.mark.parametrize(
    "options", [{}, {"qk_norm": True, "rotary": True}, {"alibi": True}, {"window": 2, "qkv_bias": True}], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_gives_that_dtype_and_nearly_the_same_numbers(dtype, options):
    layer, x = MultiHeadAttention(**SIZES, **options), new_x(dtype=dtype)
    layer.to(dtype)
    out, weights = layer(x, return_weights=True)
    assert out.dtype is layer(x).dtype is dtype
    wanted = copy.deepcopy(layer).double()(x.double())
    for found in (out, layer(x)):
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=4 * torch.finfo(dtype).eps)
    assert weights.dtype is dtype


def test_autocast_gives_nearly_the_same_numbers_and_full_gradients():
    layer, x = MultiHeadAttention(**SIZES), new_x(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, mask=padding([5, 3]))
    torch.testing.assert_close(out.float(), layer(x, mask=padding([5, 3])), rtol=0, atol=0.02)
    out.float().sum().backward()
    assert all(p.grad.dtype is torch.float32 and p.grad.isfinite().all() for p in layer.parameters())


def test_dropout_acts_in_training_only():
    layer, x = new_layer(dropout=0.5), new_x()
    plain = new_layer()
    plain.load_state_dict(layer.state_dict())
    assert not torch.allclose(layer(x), plain(x))
    torch.testing.assert_close(layer.eval()(x), plain(x), **EXACT)
    assert not torch.allclose(layer.train()(x), plain(x))


def test_weights_are_handed_back_on_request():
    layer, x = new_layer(dropout=0.5), new_x()
    out, weights = layer.eval()(x, return_weights=True)
    wanted = by_hand(layer, x, mask=causal())
    torch.testing.assert_close((out, weights), wanted, **EXACT)
    torch.testing.assert_close(layer.train()(x, return_weights=True)[1], wanted[1], **EXACT)  # before dropout


def test_cross_attention_looks_from_x_at_the_source():
    layer, x, source = new_layer(causal=False, num_kv_heads=1), new_x(), new_x(T=11)
    torch.testing.assert_close(layer(x, source), by_hand(layer, x, source)[0], **EXACT)
    mask = padding([11, 4])
    torch.testing.assert_close(layer(x, source, mask=mask), by_hand(layer, x, source, mask)[0], **EXACT)
    assert layer(x, source, return_weights=True)[1].shape == (2, 3, 5, 11)


@pytest.mark.parametrize("mask", [None, padding([3, 5]), documents([0, 0, 1, 1, 1])], ids=["", "padding", "documents"])
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": False}, {"num_kv_heads": 1}, {"scale": 0.7}, {"out_bias": False}, {"alibi": True}, {"window": 2},
     {"window": 2, "causal": False}, {"num_kv_heads": 2, "num_heads": 6, "qkv_bias": True}],
    ids=str,
)  # fmt: skip
def test_every_option_is_the_readable_formula(options, mask):
    layer, x = new_layer(**options), new_x()
    rule = causal() if options.get("causal", True) else window(99)
    rule = rule & window(2) if "window" in options else rule
    rule = rule if mask is None else rule & mask
    slopes = alibi_slopes(layer.num_heads) if "alibi" in options else None
    wanted = by_hand(layer, x, mask=rule, scale=options.get("scale"), alibi=slopes)
    torch.testing.assert_close(layer(x, mask=mask), wanted[0], **EXACT)
    torch.testing.assert_close(layer(x, mask=mask, return_weights=True), wanted, **EXACT)
    torch.testing.assert_close(trace(layer, x, mask=mask).out, wanted[0], **EXACT)


def test_out_bias_false_has_no_bias():
    assert new_layer(out_bias=False).out_proj.bias is None


@pytest.mark.parametrize("shape", [(), (5, 5), (2, 5, 5), (2, 3, 5, 5)])
def test_masks_may_be_tensors_and_add_to_the_layers_own(shape):
    layer, x = new_layer(), new_x()
    mask = torch.rand(shape) < 0.5 if shape else torch.tensor([3, 5])
    torch.testing.assert_close(layer(x, mask=mask), by_hand(layer, x, mask=causal() & mask)[0], **EXACT)


def test_the_padded_part_of_a_text_changes_nothing():
    layer, x = new_layer(), new_x()
    wanted = layer(x[:, :3])
    x[:, 3:] = math.nan
    torch.testing.assert_close(layer(x, mask=padding([3, 3]))[:, :3], wanted, **EXACT)


@pytest.mark.parametrize("rotary", [True, 500.0, Rotary(interleaved=True)], ids=str)
def test_rotary_sees_distances_and_not_places(rotary):
    layer, x = new_layer(rotary=rotary), new_x()
    torch.testing.assert_close(layer(x, positions=torch.arange(5) + 1000), layer(x), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(layer(x, positions=torch.arange(10).view(2, 5)), layer(x), rtol=1e-7, atol=1e-9)
    assert not torch.allclose(layer(x, positions=torch.arange(5) * 2), layer(x))


def test_rotary_turns_queries_and_keys_only():
    layer, x = new_layer(rotary=500.0), new_x()
    t = trace(layer, x)
    q, k = Rotary(500.0).rotate(t["transpose"], t["transpose keys"], torch.arange(5))
    wanted = attend_in_steps(q, k, t["transpose values"], mask=causal())[0]
    torch.testing.assert_close(t["context"], wanted, **EXACT)


def test_qk_norm_evens_out_the_length_of_queries_and_keys():
    layer, x = new_layer(qk_norm=True), new_x()
    wanted = layer(x)
    with torch.no_grad():
        layer.W_query.weight.mul_(100)
        layer.W_key.weight.mul_(0.1)
    torch.testing.assert_close(layer(x), wanted, rtol=0, atol=1e-3)
    assert {"q_norm.weight", "k_norm.weight"} <= layer.state_dict().keys()
    assert layer.q_norm.weight.shape == (4,)


@pytest.mark.parametrize(
    ("options", "path"),
    [({}, "fused causal"), ({"causal": False}, "fused"), ({"window": 1}, "banded"), ({"alibi": True}, "tiled")],
)
def test_a_plain_layer_takes_the_fast_way(options, path):
    with paths_taken() as taken:
        new_layer(**options)(new_x(T=11))
    assert taken == [path]


@pytest.mark.parametrize(("B", "T"), [(0, 5), (2, 0), (2, 1), (2, 13)])
def test_edge_lengths_have_their_shape(B, T):
    assert new_layer(rotary=True)(new_x(B=B, T=T)).shape == (B, T, 12)


def test_a_layer_shows_what_it_was_told():
    shown = repr(MultiHeadAttention(**SIZES, num_kv_heads=1, window=5, alibi=True, scale=0.5, causal=False))
    for told in ("d_in=7, d_out=12, context_length=13, dropout=0.0", "num_heads=3", "num_kv_heads=1", "causal=False",
                 "window=5", "scale=0.5", "alibi=True", "parameters=296"):  # fmt: skip
        assert told in shown
