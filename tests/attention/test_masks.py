import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import random_qkv, says_it_ourselves
from regard import attend, causal, dense, documents, padding, window
from regard.attention.masks import EVERYTHING, Parts

B, H, T, S = 2, 3, 5, 7
ROWS, COLS = torch.arange(T)[:, None], torch.arange(S)
PLACE = ROWS + S - T  # query i stands at key i + S − T


def full(mask, T=T, S=S):
    """The mask as a tensor of its whole shape."""
    return mask.dense(T, S).expand(B, H, T, S)


def test_causal_hides_the_future_of_each_query_at_its_place_among_the_keys():
    assert torch.equal(full(causal()), (COLS <= PLACE).expand(B, H, T, S))


def test_causal_with_more_queries_than_keys_leaves_the_first_queries_blind():
    wanted = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 1]], dtype=torch.bool)
    assert torch.equal(causal().dense(4, 2)[0, 0], wanted)


def test_window_keeps_keys_nearer_than_its_size_to_either_side():
    assert torch.equal(full(window(3)), ((PLACE - COLS).abs() < 3).expand(B, H, T, S))


def test_window_of_one_sees_only_oneself():
    assert torch.equal(window(1).dense(T)[0, 0], torch.eye(T, dtype=torch.bool))


@pytest.mark.parametrize(
    "ids", [torch.tensor([4, 4, 2, 2, 2, 4, 0]), torch.arange(14).view(2, 7) // 3], ids=["S", "B S"]
)
def test_documents_see_only_their_own(ids):
    each = ids.expand(B, S)
    wanted = each[:, S - T :, None] == each[:, None, :]
    assert torch.equal(full(documents(ids)), wanted[:, None].expand(B, H, T, S))


def test_dense_of_a_square_needs_one_size():
    assert torch.equal(causal().dense(4), causal().dense(4, 4))


RULES = st.sampled_from(
    [
        causal(),
        window(1),
        window(2),
        window(4),
        EVERYTHING,
        padding([4, 0]),
        padding([7, 3]),
        padding(torch.arange(S).expand(B, S) % 3 > 0),
        documents([0, 0, 1, 1, 1, 2, 2]),
        dense(torch.arange(T * S).view(T, S) % 3 == 0),
        dense(torch.arange(B * H * T * S).view(B, H, T, S) % 5 < 2),
    ]
)
COMBINATIONS = st.recursive(
    RULES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(a=COMBINATIONS, b=COMBINATIONS)
def test_and_or_not_are_those_of_the_tensors(a, b):
    assert torch.equal(full(a & b), full(a) & full(b))
    assert torch.equal(full(a | b), full(a) | full(b))
    assert torch.equal(full(~a), ~full(a))


@given(mask=COMBINATIONS, data=st.data())
def test_a_tile_is_a_cut_of_the_whole(mask, data):
    top = data.draw(st.integers(0, T - 1))
    left = data.draw(st.integers(0, S - 1))
    rows, cols = torch.arange(top, T), torch.arange(left, S)
    found = mask.tile(rows, cols, S - T)
    found = found.reshape((1,) * (4 - found.dim()) + tuple(found.shape)).expand(B, H, len(rows), len(cols))
    assert torch.equal(found, full(mask)[:, :, top:, left:])


@settings(max_examples=100)
@given(mask=COMBINATIONS, data=st.data())
def test_a_span_never_cuts_off_an_allowed_key(mask, data):
    first = data.draw(st.integers(0, T - 1))
    last = data.draw(st.integers(first, T - 1))
    low, high = mask.span(first + S - T, last + S - T, S)
    seen = full(mask)[:, :, first : last + 1].any(dim=(0, 1, 2)).nonzero().flatten()
    assert low >= 0
    assert high <= S
    assert all(low <= key < high for key in seen)


@settings(max_examples=100)
@given(mask=COMBINATIONS)
def test_the_parts_of_a_mask_add_up_to_the_mask(mask):
    parts = mask.parts()
    whole = EVERYTHING
    whole = whole & causal() if parts.causal else whole
    whole = whole & window(parts.window) if parts.window is not None else whole
    whole = whole & padding(parts.keys) if parts.keys is not None else whole
    whole = whole & parts.rest if parts.rest is not None else whole
    assert torch.equal(full(whole), full(mask))


def test_what_fused_kernels_know_is_recognised_in_any_order():
    parts = (window(9) & padding([4, 0]) & causal() & window(3)).parts()
    assert (parts.causal, parts.window, parts.rest) == (True, 3, None)
    assert torch.equal(parts.keys, torch.tensor([4, 0]))
    assert EVERYTHING.parts() == Parts()


@pytest.mark.parametrize("first", [-3, 0, 5, 6])
def test_spans_are_as_narrow_as_the_rule(first):
    assert causal().span(first, first, S) == (0, max(first + 1, 0))
    assert (causal() & window(2)).span(first, first, S) == (max(first - 1, 0), max(first + 1, 0))


@pytest.mark.parametrize("mask", [causal(), window(3) & padding([4, 2]), ~documents([0, 1, 1, 2, 2, 2, 2])])
def test_copies_and_pickles_are_the_same_mask(mask):
    assert torch.equal(full(copy.deepcopy(mask)), full(mask))
    assert torch.equal(full(pickle.loads(pickle.dumps(mask))), full(mask))


def test_a_mask_with_shorter_ids_takes_int32_as_well():
    assert torch.equal(full(documents(torch.arange(S, dtype=torch.int32))), full(documents(list(range(S)))))


@says_it_ourselves
@pytest.mark.parametrize("size", [0, -3, True, 2.0])
def test_a_window_must_see_at_least_oneself(size):
    with pytest.raises(
        ValueError, match=rf"window \({size}\) must be a whole number of at least 1; 1 sees only oneself"
    ):
        window(size)


@pytest.mark.parametrize("ids", [torch.ones(3), torch.ones(2, 3, 5, dtype=torch.long), torch.ones(3, dtype=torch.bool)])
def test_documents_of_another_kind_say_what_they_are(ids):
    with pytest.raises(
        ValueError, match=r"documents takes whole ids of shape \(S,\) or \(B, S\); this is \w+ of shape \("
    ):
        documents(ids)


MISFITS = {
    "turned": (
        dense(torch.ones(B, S, T, dtype=torch.bool)),
        r"mask has shape \(2, 7, 5\) but weights here are \(B=2, T=5, S=7\); "
        r"did you mean mask.mT\? \(True = may attend\)",
    ),
    "padding as mask": (
        dense(torch.ones(B, S, dtype=torch.bool)),
        r"mask has shape \(2, 7\) but weights here are \(T=5, S=7\); "
        r"did you mean regard.padding\(mask\)\? \(True = may attend\)",
    ),
    "other heads": (
        dense(torch.ones(B, H + 1, T, S, dtype=torch.bool)),
        r"mask has shape \(2, 4, 5, 7\) but weights here are \(B=2, H=3, T=5, S=7\); "
        r"give True where a query \(row\) may attend",
    ),
    "padding of another batch": (
        padding([1, 2, 3]),
        r"padding is for a batch of 3 but x has B=2; give one row or length for each",
    ),
    "padding of other keys": (
        padding(torch.ones(B, T, dtype=torch.bool)),
        r"padding covers 5 keys but there are S=7; with a cache, cover the cached keys too; or pass lengths",
    ),
    "documents of other keys": (
        documents([0, 0, 1]),
        r"documents names 3 tokens but there are S=7 keys and T=5 queries; name every key",
    ),
    "documents of another batch": (
        documents(torch.zeros(3, S, dtype=torch.long)),
        r"documents is for a batch of 3 but x has B=2; give one row for each, or one for all",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: causal() & m, lambda m: m | causal(), lambda m: ~m])
@pytest.mark.parametrize("name", MISFITS)
def test_a_mask_that_does_not_fit_says_why_however_it_is_combined(name, wrap):
    mask, message = MISFITS[name]
    with pytest.raises(ValueError, match=message):
        attend(*random_qkv(B, H, T, S, D=8), mask=wrap(mask))


def test_documents_need_a_key_for_every_query():
    with pytest.raises(
        ValueError, match=r"documents names 3 tokens but there are S=3 keys and T=4 queries; name every key"
    ):
        documents([0, 0, 1]).check(B=1, H=1, T=4, S=3)
