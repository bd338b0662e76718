"""The ids of cached keys are those of the call that had the same keys."""

from types import SimpleNamespace

import pytest
import torch

from heads.made_calls import made_call
from regard.attention.masks import dense, padding
from regard.heads.calls.same_keys import fingerprint
from regard.heads.inputs import cached_texts
from regard.heads.inputs.cached_texts import CachedText, CachedTexts, text_read, total_length, without_unused_slots

IDS = torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
MARKS = 100 * torch.tensor([[1], [2]]) + torch.arange(4)  # as if keys knew their positions
FIRST = torch.tensor([0, 1])


def known(*texts):
    cached = CachedTexts()
    for text in texts or [CachedText(IDS, FIRST, MARKS)]:
        cached.remember("a", text)
    return cached


def new(marks):
    """The fingerprints of one more key."""
    return torch.nn.functional.pad(marks, (0, 1), value=-1)


def test_a_text_that_goes_on_has_all_its_ids():
    text = known().before("a", new(MARKS), 1)
    assert torch.equal(text.ids, IDS)
    assert torch.equal(text.first, FIRST)


def test_a_cache_that_was_cut_back_has_the_first_ids():
    assert torch.equal(known().before("a", new(MARKS[:, :2]), 1).ids, IDS[:, :2])


def test_a_cache_that_dropped_keys_has_all_ids():
    assert torch.equal(known().before("a", new(MARKS[:, 2:]), 1).ids, IDS)


def test_texts_that_changed_places_have_their_own_ids():
    text = known().before("a", new(MARKS[[1, 1, 0]]), 1)
    assert torch.equal(text.ids, IDS[[1, 1, 0]])
    assert torch.equal(text.first, FIRST[[1, 1, 0]])


def test_texts_of_several_calls_may_be_side_by_side():
    cached = known(CachedText(IDS, FIRST, MARKS), CachedText(IDS + 1, FIRST, MARKS + 1000))
    marks = torch.stack([MARKS[1], MARKS[0] + 1000])
    assert torch.equal(cached.before("a", new(marks), 1).ids, torch.stack([IDS[1], IDS[0] + 1]))


def test_keys_that_nobody_read_have_no_ids():
    assert known().before("a", new(MARKS + 1), 1) is None
    assert known().before("b", new(MARKS), 1) is None
    half = torch.stack([MARKS[0], MARKS[1] + 7])
    assert known().before("a", new(half), 1) is None


def test_a_text_whose_end_is_like_its_beginning_is_told_by_its_length():
    cached = known(CachedText(torch.tensor([[5, 6, 5, 6]]), FIRST[:1], torch.tensor([[1, 2, 1, 2]])))
    past = torch.tensor([[1, 2, -1]])
    assert cached.before("a", past, 1, total=5).ids.tolist() == [[5, 6, 5, 6]]
    assert cached.before("a", past, 1, total=3).ids.tolist() == [[5, 6]]
    assert cached.before("a", past, 1).ids.tolist() == [[5, 6]]


def test_where_texts_with_other_beginnings_have_the_same_last_keys_the_text_is_not_known():
    one, other = (CachedText(torch.tensor([[i, 6, 7]]), FIRST[:1], torch.tensor([[2, 3]])) for i in (5, 8))
    longer = CachedText(torch.tensor([[9, 8, 6, 7]]), FIRST[:1], torch.tensor([[2, 3]]))
    past = torch.tensor([[2, 3, -1]])
    assert known(one, other).before("a", past, 1) is None
    assert known(one, longer).before("a", past, 1) is None
    assert known(one, longer).before("a", past, 1, total=5).ids.tolist() == [[9, 8, 6, 7]]
    assert known(one, longer).before("a", past, 1, total=4).ids.tolist() == [[5, 6, 7]]


def test_a_cache_says_how_many_tokens_it_has_read():
    from transformers import DynamicCache

    cache = DynamicCache()
    cache.update(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5, 7), 0)
    mask = torch.ones(2, 13)
    assert total_length({"past_key_values": cache, "cache": None}, 3, mask) == 8
    assert total_length({"cache": SimpleNamespace(length=11)}, 3, None) == 14
    assert total_length({"cache": object()}, 3, mask) == 13
    assert total_length({}, None, mask) == 13
    assert total_length({}, 3, None) is None


def test_a_text_that_went_on_is_remembered_once_and_old_ones_are_forgotten():
    cached = known()
    cached.remember("a", CachedText(new(IDS), FIRST, new(MARKS)))
    assert cached.lengths("a") == [5]
    assert torch.equal(cached.before("a", new(MARKS), 1).ids, IDS)
    for number in range(20):
        cached.remember("a", CachedText(IDS, FIRST, MARKS + 1000 * number + 1000))
    assert len(cached._settle("a")) == 16
    assert cached.before("a", new(MARKS), 1) is None


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_fingerprints_are_computed_when_a_text_goes_on_or_when_its_keys_are_large(held, monkeypatch):
    monkeypatch.setattr(cached_texts, "HELD", held)
    computed = []
    monkeypatch.setattr(cached_texts, "fingerprint", lambda keys: computed.append(keys) or fingerprint(keys))
    cached, keys = CachedTexts(), torch.randn(3, 2, 2, 4, 5)
    for k in keys:
        call = made_call("a", q=k, k=k)
        cached.remember("a", text_read(call, IDS, FIRST))
    assert len(computed) == (0 if held else 3)
    kept = keys[1].clone()
    keys.zero_()  # the model may do with its own keys what it likes
    assert torch.equal(cached.before("a", new(fingerprint(kept)), 1).ids, IDS)
    assert len(computed) == 3


def test_slots_of_a_static_cache_that_no_query_may_see_are_left_out():
    q, k = torch.randn(2, 3, 2, 5), torch.randn(2, 3, 11, 5)
    keep = torch.arange(11) < 7
    for mask in (padding(keep.expand(2, 11)), dense(keep.expand(2, 1, 2, 11))):
        call = without_unused_slots(made_call("", q=q, k=k, mask=mask), 7)
        assert call.sizes == (2, 3, 2, 7)
        assert torch.equal(call.attention.k, k[:, :, :7])
        for length in (1, 6, 11):  # shorter than the queries; a query sees the key after it; all slots are used
            assert without_unused_slots(made_call("", q=q, k=k, mask=mask), length).sizes == (2, 3, 2, 11)


def test_a_cache_that_dropped_keys_and_was_cut_back_has_the_ids_before():
    cached = known()
    assert torch.equal(cached.before("a", new(MARKS[:, 1:3]), 1, total=4).ids, IDS[:, :3])
    swapped = cached.before("a", new(MARKS[[1, 0], 1:3]), 1, total=4)
    assert torch.equal(swapped.ids, IDS[[1, 0], :3])
    assert torch.equal(swapped.first, FIRST[[1, 0]])
    assert cached.before("a", new(MARKS[:, 1:3]), 1, total=3) is None
    assert cached.before("a", new(MARKS[:, 1:3]), 1) is None


def test_texts_of_one_batch_that_differ_in_dropped_keys_only_are_unknown():
    ids = torch.tensor([[5, 6, 7, 8], [9, 6, 7, 8]])
    marks = torch.tensor([[1, 2, 3, 4], [5, 2, 3, 4]])
    cached = known(CachedText(ids, torch.tensor([0, 0]), marks))
    assert cached.before("a", new(marks[:, 1:]), 1, total=5) is None
    assert torch.equal(cached.before("a", new(marks), 1, total=5).ids, ids)
