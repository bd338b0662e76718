"""A layer that is called like the torch.nn.MultiheadAttention that it replaces gives what that gave."""

import pytest
import torch
from torch import nn

import regard

B, H, T, S, E = 2, 3, 5, 7, 12


def pair(**options):
    torch.manual_seed(11)
    theirs = nn.MultiheadAttention(E, H, **{"batch_first": True, "dtype": torch.float64, **options}).eval()
    for p in theirs.parameters():
        nn.init.normal_(p, std=0.5)
    return theirs, regard.adopt(theirs, drop_in=True)


def assert_same(theirs, ours, *args, **kwargs):
    for one, other in zip(ours(*args, **kwargs), theirs(*args, **kwargs), strict=True):
        if other is None:
            assert one is None
        else:
            torch.testing.assert_close(one, other)


def inputs(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)


PADDING = torch.arange(S) >= torch.tensor([S, 4])[:, None]  # True hides, as torch has it
FUTURE = torch.ones(T, S, dtype=torch.bool).triu(1)
EACH_HEAD = torch.rand(B * H, T, S, generator=torch.Generator().manual_seed(3)) > 0.7
EACH_HEAD[..., 0] = False  # every query sees a key
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "additive padding": {"key_padding_mask": torch.zeros(B, S, dtype=torch.float64).masked_fill(PADDING, -torch.inf)},
    "a mask": {"attn_mask": FUTURE},
    "an additive mask": {"attn_mask": torch.zeros(T, S, dtype=torch.float64).masked_fill(FUTURE, -torch.inf)},
    "a mask of each head": {"attn_mask": EACH_HEAD},
    "both": {"attn_mask": FUTURE, "key_padding_mask": PADDING},
}


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("asked", [{}, {"need_weights": False}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("batch_first", [True, False])
def test_outputs_and_weights_are_those_of_the_layer_it_replaces(options, asked, batch_first):
    theirs, ours = pair(batch_first=batch_first)
    x, source = (t if batch_first else t.transpose(0, 1) for t in (inputs(B, T, E), inputs(B, S, E)))
    assert_same(theirs, ours, x, source, source, **options, **asked)


def test_a_text_that_attends_to_itself_and_one_without_a_batch():
    theirs, ours = pair()
    x, y = inputs(B, T, E), inputs(T, E)
    assert_same(theirs, ours, x, x, x)
    assert_same(theirs, ours, query=x, key=x, value=x, attn_mask=FUTURE[:, :T], is_causal=True)
    assert_same(theirs, ours, y, y, y)
    torch.testing.assert_close(ours(x, x, x, is_causal=True)[0], theirs(x, x, x, attn_mask=FUTURE[:, :T])[0])


def test_a_layer_that_was_adopted_as_causal_hides_the_future_whatever_is_asked():
    theirs, _ = pair()
    ours, x = regard.adopt(theirs, drop_in=True, causal=True), inputs(B, T, E)
    torch.testing.assert_close(ours(x, x, x)[0], theirs(x, x, x, attn_mask=FUTURE[:, :T])[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_it_takes_the_place_in_an_encoder_of_torch(batch_first):
    torch.manual_seed(5)
    encoder = nn.TransformerEncoderLayer(E, H, 13, dropout=0.0, batch_first=batch_first, dtype=torch.float64).eval()
    x = inputs(B, T, E) if batch_first else inputs(T, B, E)
    expected = encoder(x, src_key_padding_mask=PADDING[:, :T])
    encoder.self_attn = regard.adopt(encoder.self_attn, drop_in=True)
    torch.testing.assert_close(encoder(x, src_key_padding_mask=PADDING[:, :T]), expected)


def test_a_query_that_sees_nothing_is_zero_before_the_output_projection():
    theirs, ours = pair()
    x = inputs(1, T, E)
    out, weights = ours(x, x, x, key_padding_mask=torch.ones(1, T, dtype=torch.bool))
    assert weights.count_nonzero() == 0
    torch.testing.assert_close(out, theirs.out_proj.bias.expand(1, T, E))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mask": torch.ones(T, T)}, "attn_mask holds other numbers than 0 and −∞, which this layer does not add"),
        ({"attn_mask": torch.ones(T, T, dtype=torch.int64)}, r"attn_mask \(int64 of shape \(5, 5\)\) must be bool"),
        ({"attn_mask": torch.zeros(3, 3)}, r"attn_mask \(float32 of shape \(3, 3\)\) must be \(T, S\) = \(5, 5\)"),
        ({"key_padding_mask": torch.zeros(T, B)}, r"key_padding_mask \(.*\) must be \(B, S\) = \(2, 5\)"),
    ],
    ids=["a bias", "whole numbers", "a shape", "a shape of padding"],
)
def test_masks_that_it_cannot_take_are_refused(options, message):
    _, ours = pair()
    x = inputs(B, T, E)
    with pytest.raises(ValueError, match=message):
        ours(x, x, x, **options)


def test_keys_that_are_not_the_values_are_refused():
    _, ours = pair()
    with pytest.raises(ValueError, match=r"key and value must be one tensor here: att\(x, x, x\)"):
        ours(inputs(B, T, E), inputs(B, S, E), inputs(B, S, E))


def test_only_a_layer_of_torch_has_that_call():
    with pytest.raises(ValueError, match=r"called like torch.nn.MultiheadAttention, and takes one, not Linear"):
        regard.adopt(nn.Linear(3, 3), drop_in=True)


@pytest.mark.parametrize(("args", "kwargs"), [(3, {}), (1, {"need_weights": False}), (0, {"query": None})], ids=str)
def test_the_layer_itself_answers_that_call_with_its_own(args, kwargs):
    layer = regard.adopt(pair()[0])
    with pytest.raises(TypeError, match=r"layer\(x\), and layer\(x, source\).*regard.adopt\(module, drop_in=True\)"):
        layer(*[inputs(B, T, E)] * args, **kwargs)
