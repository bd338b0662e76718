"""Padding as a mask shows it: a key that nobody may see says nothing about the query at its place."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from heads.made_calls import made_call
from heads.models import calls, watched
from regard.attention.masks import causal, padding, window
from regard.attention.masks import dense as dense_mask
from regard.heads.inputs.padded_queries import by_evidence, hides_keys, in_blocks, last_queries, real_queries

KEEP = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
CAUSAL = torch.ones(5, 5).bool().tril()


def call_with(mask, T=5, **options):
    return made_call("", q=torch.empty(2, 3, T, 0), k=torch.empty(2, 3, T, 0), mask=mask, **options)


def never(columns):
    return False


@pytest.mark.parametrize(
    "mask",
    [
        padding([5, 3]),
        causal() & padding([5, 3]),
        dense_mask(padding([5, 3]).dense(5)),
        dense_mask(KEEP[:, None] & CAUSAL),
        padding([5, 3]) & ~window(6) | padding([5, 3]),
    ],
    ids=lambda mask: mask.kind,
)
def test_padding_is_found_whatever_the_mask(mask):
    assert torch.equal(real_queries(call_with(mask)), KEEP)


def test_masks_in_which_every_query_sees_itself_hide_no_key_from_all():
    assert real_queries(call_with(causal() & window(2))) is None


def test_what_sees_nothing_and_is_seen_by_nobody_is_padding():
    seen = torch.rand(2, 7, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    seen[1, :, 4:] = False
    seen[1, 4:6] = False
    expected = torch.ones(2, 7, dtype=torch.bool)
    expected[1, 4:6] = False
    assert torch.equal(by_evidence(seen, never), expected)


def test_keys_hidden_from_every_query_of_every_text_are_padding_only_if_the_model_was_given_such_a_mask():
    seen = KEEP[1].expand(2, 5, 5)
    assert by_evidence(seen, never).all()
    assert torch.equal(by_evidence(seen, lambda columns: torch.equal(columns, KEEP[[1, 1]])), KEEP[[1, 1]])


class Sdpa(nn.Module):
    def forward(self, q, mask):
        return F.scaled_dot_product_attention(q, q, q, mask)


class Eager(nn.Module):
    def forward(self, q, mask):
        weights = (q @ q.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -1e9).softmax(-1)
        return weights.masked_fill(~mask.any(-1, keepdim=True), 0) @ q


def largest_keys(q, k):
    """For each query, its k largest scores among the keys so far: (B, 1, T, T)."""
    scores = (q @ q.mT).masked_fill(torch.ones(q.shape[2], q.shape[2]).triu(1).bool(), -math.inf).sum(1, keepdim=True)
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(k, -1).indices, True)
    return chosen & torch.ones_like(chosen).tril()


@pytest.mark.parametrize("model", [Sdpa, Eager])
@pytest.mark.parametrize("kind", ["strictly causal", "top k", "first keys only", "no first key"])
@torch.no_grad()
def test_every_query_that_sees_something_counts(model, kind):
    torch.manual_seed(3)
    q = torch.randn(2, 3, 11, 7)
    mask = {
        "strictly causal": torch.ones(11, 11).bool().tril(-1),
        "top k": largest_keys(q, 2),
        "first keys only": (torch.arange(11) < 3).expand(11, 11),
        "no first key": (torch.arange(11) > 0).expand(11, 11).contiguous(),
    }[kind]
    scores = (q.double() @ q.double().mT / math.sqrt(7)).masked_fill(~mask, -math.inf)
    p = scores.softmax(-1).nan_to_num(0.0)
    layer = model()
    with regard.watch(layer) as seen:
        layer(q, mask)
    nothing = ~mask.any(-1).expand(2, 3, 11)
    close = partial(torch.testing.assert_close, rtol=0, atol=1e-5, equal_nan=True, check_dtype=False)
    close(seen[0].weights(), p)
    close(seen[0].received, p.sum(2))
    close(seen[0].entropy, -torch.special.xlogy(p, p).sum(-1).masked_fill(nothing, math.nan))


@torch.no_grad()
def test_a_mask_of_keys_given_to_a_module_is_padding_in_eager_code_too():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Eager()

        def forward(self, q, hidden):
            return self.attention(q, ~hidden[:, None, None])

    q, hidden = torch.randn(2, 3, 5, 7), ~KEEP[[1, 1]]
    (call,) = calls(watched(Inside(), q, hidden)[1])
    assert torch.equal(call.origin.real, ~hidden)


@pytest.mark.parametrize("mask", [KEEP, ~KEEP, KEEP.long(), KEEP[:, None, None].float(), (KEEP.float() - 1) * 1e9])
def test_a_mask_of_keys_is_recognised_by_what_it_hides(mask):
    assert hides_keys([None, "x", torch.randn(3, 4), mask], KEEP)
    assert not hides_keys([mask, torch.arange(5).expand(2, 5)], KEEP.flip(1))


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@torch.no_grad()
def test_padding_of_a_text_beside_an_image_is_found_though_its_mask_is_shorter(how):
    from transformers import ViltConfig, ViltModel

    sizes = {"vocab_size": 53, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = ViltConfig(**sizes, intermediate_size=31, image_size=16, patch_size=8, max_position_embeddings=16)
    try:
        model = ViltModel._from_config(config, attn_implementation=how).eval()
    except ValueError:
        pytest.skip("transformers has no such attention for this model")
    images = {"pixel_values": torch.randn(2, 3, 16, 16), "pixel_mask": torch.ones(2, 16, 16, dtype=torch.long)}
    with regard.watch(model) as seen:
        model(input_ids=torch.randint(3, 53, (2, 5)), attention_mask=KEEP.long(), **images)
    padded = F.pad(~KEEP, (0, 5))[:, None].expand(2, 3, 10)
    for layer in seen:
        assert torch.equal(layer.entropy.isnan(), padded)


def test_blocks_of_a_text_have_the_padding_of_their_tokens():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    call = made_call("", weights=torch.rand(2 * 2, 1, 3, 7))
    expected = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]]).bool()
    assert torch.equal(in_blocks(mask, call), expected)
    assert in_blocks(mask, made_call("", weights=torch.rand(3, 1, 3, 7))) is None


def test_the_padding_of_the_last_queries_is_that_of_the_whole_text():
    mask = torch.tensor([[1, 0, 1, 1, 0]]).bool()
    call = made_call("", weights=torch.rand(2, 1, 2, 5))
    assert last_queries(mask, 2, call).tolist() == [[True, False]] * 2
    assert last_queries(mask, 3, call) is None


def test_slots_of_a_static_cache_that_are_not_used_yet_are_after_the_last_queries():
    mask = torch.tensor([[0, 1, 1, 0, 0]]).bool()
    call = made_call("", weights=torch.rand(2, 1, 2, 5))
    assert last_queries(mask, 2, call, total=3).tolist() == [[True, True]] * 2
    assert last_queries(mask, 2, call, total=7).tolist() == [[False, False]] * 2
