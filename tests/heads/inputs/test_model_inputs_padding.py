"""Padding that only the mask shows: a key that no query may see is padding, and so is the query at its position."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from heads.made_calls import made_call
from heads.models import calls, gpt2, ids, llama, mistral, t5, watched
from regard.attention.masks import EVERYTHING
from regard.heads.calls import visibility
from regard.heads.measure import statistics
from regard.heads.measure.registry import COLUMNS, ROWS

RIGHT = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
LEFT = RIGHT.flip(1)
FUTURE = torch.ones(7, 7).triu(1).bool()
LOW = {
    "-inf": -math.inf,
    "lowest": torch.finfo(torch.float32).min,
    "lowest of bfloat16": torch.finfo(torch.bfloat16).min,
    "lowest of float16": torch.finfo(torch.float16).min,
    "-1e9": -1e9,
}
x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))


class Sdpa(nn.Module):
    def forward(self, x, mask=None):
        return F.scaled_dot_product_attention(x, x, x, mask)


class ExplicitSoftmax(nn.Module):
    def forward(self, x, mask, low):
        return (x @ x.mT).masked_fill(~mask, low).softmax(-1) @ x


def real_of(model, *args, **kwargs):
    (call,) = calls(watched(model, *args, **kwargs)[1])
    return call.origin.real


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "how", ["lengths", "rule", "left", "with a window", "two rules", "one row", "written out", "or"]
)
def test_padding_of_our_own_layer_is_read_from_its_mask(causal, how):
    keep = LEFT if how == "left" else RIGHT
    mask = {
        "lengths": [7, 4],
        "rule": regard.padding(keep),
        "left": regard.padding(keep),
        "with a window": regard.padding([7, 4]) & regard.window(3),
        "two rules": regard.padding([7, 5]) & regard.padding(keep),
        "one row": keep[:, None, None],
        "written out": (keep[:, None] & torch.ones(7, 1, dtype=torch.bool)),
        "or": regard.padding([7, 3]) | regard.padding(keep),
    }[how]
    layer = regard.MultiHeadAttention(12, 12, 16, 0.0, 3, causal=causal).eval()
    with regard.watch(layer, padding=keep) as given:
        layer(x, mask=mask)
    with regard.watch(layer) as found:
        layer(x, mask=mask)
    assert torch.equal(found[0].entropy.isnan(), ~keep[:, None].expand(2, 3, 7))
    for name in ("entropy", "received", "sink"):
        torch.testing.assert_close(getattr(found[0], name), getattr(given[0], name), rtol=0, atol=0, equal_nan=True)


def test_padding_of_our_own_model_is_read_from_its_mask():
    config = regard.GPTConfig(vocab_size=53, context_length=16, num_layers=2, d_model=12, num_heads=3)
    model = regard.GPT(config).eval()
    for call in calls(watched(model, ids(), mask=[7, 4])[1]):
        assert torch.equal(call.origin.real, RIGHT)
    for call in calls(watched(model, ids(), mask=regard.padding(LEFT))[1]):
        assert torch.equal(call.origin.real, LEFT)


def test_a_mask_is_not_made_dense_to_find_padding(monkeypatch):
    monkeypatch.setattr(visibility, "visible_tile", None)
    layer = regard.MultiHeadAttention(12, 12, 16, 0.0, 3, window=3).eval()
    assert torch.equal(real_of(layer, x, mask=regard.padding(LEFT) & regard.padding([7, 7])), LEFT)
    assert real_of(layer, x, mask=regard.documents([0, 0, 0, 1, 1, 1, 1])) is None


@pytest.mark.parametrize("keep", [LEFT, RIGHT], ids=["left", "right"])
@pytest.mark.parametrize("low", LOW)
def test_padding_is_read_from_a_float_mask_as_from_a_bool_mask(low, keep):
    q = torch.randn(2, 3, 7, 8)
    rows, both = keep[:, None, None], keep[:, None, None] & ~FUTURE
    for mask in (rows, both, both.expand(2, 3, 7, 7)):
        bias = torch.randn(mask.shape).masked_fill(~mask, LOW[low])
        assert torch.equal(real_of(Sdpa(), q, mask), keep)
        assert torch.equal(real_of(Sdpa(), q, bias), keep)


def test_a_bias_that_hides_nothing_is_no_padding():
    q = torch.randn(2, 3, 7, 8)
    for shape in ((7, 7), (1, 3, 7, 7), (2, 1, 7, 1)):
        assert torch.equal(real_of(Sdpa(), q, -1e4 * torch.rand(shape)), torch.ones(2, 7, dtype=torch.bool))


@pytest.mark.parametrize("keep", [LEFT, RIGHT], ids=["left", "right"])
@pytest.mark.parametrize("low", LOW)
def test_padding_is_read_from_the_scores_before_a_softmax(low, keep):
    q = torch.randn(2, 3, 7, 8)
    for mask in (keep[:, None, None], keep[:, None, None] & ~FUTURE):
        assert torch.equal(real_of(ExplicitSoftmax(), q, mask, LOW[low]), keep)
        folded = mask.expand(2, 3, *mask.shape[2:]).flatten(0, 1)  # heads before the batch is known
        assert torch.equal(real_of(ExplicitSoftmax(), q.flatten(0, 1), folded, LOW[low]), keep.repeat_interleave(3, 0))


def test_a_key_that_is_only_never_looked_at_is_no_padding():
    class Sharp(nn.Module):
        def forward(self, scores):
            return scores.softmax(-1) @ scores

    scores = torch.zeros(1, 1, 7, 7)
    scores[..., 0] = 1000.0
    (call,) = calls(watched(Sharp(), scores)[1])
    assert not call.attention.weights[..., 1:].any()
    assert call.origin.real is None
    assert call.attention.mask is EVERYTHING


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # on import
@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("keep", [LEFT, RIGHT], ids=["left", "right"])
@torch.no_grad()
def test_padding_of_x_transformers_is_read_from_its_mask(flash, keep):
    from x_transformers import Decoder, Encoder, TransformerWrapper

    for layers in (Decoder, Encoder):
        inside = layers(dim=32, depth=2, heads=4, attn_dim_head=8, attn_flash=flash)
        model = TransformerWrapper(num_tokens=53, max_seq_len=64, attn_layers=inside).eval()
        for call in calls(watched(model, ids(), mask=keep)[1]):
            assert torch.equal(call.origin.real, keep)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("changed", [False, True])
def test_padding_is_read_from_a_mask_mod_of_flex_attention(changed):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def further(score, b, h, i, j):
        return score - (i - j).abs()

    class Flex(nn.Module):
        def forward(self, x):
            hides = create_block_mask(lambda b, h, i, j: LEFT[b, j] & (j <= i), 2, None, 7, 7, device="cpu")
            return flex_attention(x, x, x, score_mod=further if changed else None, block_mask=hides)

    assert torch.equal(real_of(Flex(), torch.randn(2, 3, 7, 8)), LEFT)


def test_padding_of_another_text_hides_no_query():
    y = torch.randn(2, 7, 12)
    ours = regard.MultiHeadAttention(12, 12, 16, 0.0, 3, causal=False).eval()
    assert real_of(ours, x, y, mask=regard.padding(RIGHT)) is None
    for theirs in (
        nn.MultiheadAttention(12, 3, batch_first=True),
        nn.MultiheadAttention(12, 3, batch_first=True).eval(),
    ):
        assert real_of(theirs, x, y, y, key_padding_mask=~RIGHT) is None
        assert real_of(theirs, x, y, y, key_padding_mask=~RIGHT, need_weights=False) is None


@pytest.mark.parametrize("low", LOW)
def test_statistics_begin_at_the_first_key_that_no_lowest_number_hides(low):
    q, tokens = torch.randn(2, 3, 7, 8), torch.randint(0, 3, (2, 7))
    seen = LEFT[:, None, None] & ~FUTURE
    found = []
    for hidden in (-math.inf, LOW[low]):
        bias = torch.zeros(2, 1, 7, 7).masked_fill(~seen, hidden)
        call = made_call("", q=q, k=q, scale=0.3, bias=bias, real=LEFT, tokens=tokens)
        found.append(statistics.measure(call, frozenset({*ROWS, *COLUMNS})))
    right, ours = found
    assert right.keys() == ours.keys()
    for name in right:
        torch.testing.assert_close(ours[name], right[name], equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")
    weights = (0.3 * q @ q.mT).masked_fill(~seen, -math.inf).softmax(-1)
    sink = torch.stack([weights[0, ..., 0], weights[1, ..., 3]]).masked_fill(~LEFT[:, None], math.nan)
    torch.testing.assert_close(ours["sink"], sink, equal_nan=True)


@torch.no_grad()
def test_t5_is_seen_alike_by_sdpa_and_written_out():
    model, tokens = t5(), torch.randint(3, 6, (2, 7))
    found = []
    for how in ("sdpa", "eager"):
        model.set_attn_implementation(how)
        with regard.watch(model) as seen:
            model(input_ids=tokens, attention_mask=LEFT.long(), decoder_input_ids=tokens[:, :5])
        found.append(seen)
    for fused, written in zip(*found, strict=True):
        for name in ("entropy", "sink", "previous", "self", "received"):
            torch.testing.assert_close(getattr(fused, name), getattr(written, name), equal_nan=True)
    for fused, written in zip(*(list(seen)[:2] for seen in found), strict=True):  # those that read the ids
        for name in ("duplicate", "induction"):
            torch.testing.assert_close(getattr(fused, name), getattr(written, name), equal_nan=True)


def test_a_key_without_a_value_is_left_out_and_padding_found_still():
    class Sink(nn.Module):
        def forward(self, x, mask):
            scores = F.pad((x @ x.mT).masked_fill(~mask, -math.inf), (0, 1))
            return scores.softmax(-1)[..., :-1] @ x

    assert torch.equal(real_of(Sink(), torch.randn(2, 3, 7, 8), LEFT[:, None, None] & ~FUTURE), LEFT)


@pytest.mark.parametrize("made", [llama, gpt2, mistral])
def test_a_static_cache_with_padding_is_seen_as_a_growing_one(made):
    model, x = made(), ids()
    model.set_attn_implementation("eager")
    how = {"attention_mask": LEFT.long(), "max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    found = []
    for cache in ("dynamic", "static"):
        with regard.watch(model) as seen:
            model.generate(x, cache_implementation=cache, **how)
        found.append(seen)
    rows = F.pad(LEFT, (0, 3), value=True)
    for grown, fixed in zip(*found, strict=True):
        assert torch.equal(fixed.entropy.isnan(), ~rows[:, None].expand_as(fixed.entropy))
        torch.testing.assert_close(fixed.weights(), grown.weights())
        for name in ("entropy", "distance", "sink", "previous", "self", "received", "duplicate", "induction"):
            torch.testing.assert_close(getattr(fixed, name), getattr(grown, name), equal_nan=True)


@torch.no_grad()
def test_padded_rows_do_not_make_a_causal_model_look_bidirectional():
    model, x, rule = llama(), ids(), regard.causal() & regard.padding(LEFT)
    model.set_attn_implementation("eager")
    for call in calls(watched(model, x, attention_mask=LEFT.long())[1]):
        count, distance = visibility.visible_key_counts(call)
        right = visibility.visible_key_counts(
            made_call("", q=torch.empty(2, 4, 7, 0), k=torch.empty(2, 4, 7, 0), mask=rule, real=LEFT)
        )
        torch.testing.assert_close((count, distance), right, equal_nan=True)
