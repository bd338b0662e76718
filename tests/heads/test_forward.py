"""One run of a model, and whether it continues the run before."""

import pytest
import torch

from regard.heads.call import WatchedCall
from regard.heads.copies import Copies
from regard.heads.forward import Forward, in_slots
from regard.heads.record import Record, record_call


def run(number, T, S, B=2, H=3, keys=None, name="h.0"):
    """A forward of one layer with T queries and S keys."""
    keys = torch.randn(B, H, S, 4) if keys is None else keys
    call = WatchedCall(name, q=torch.randn(B, H, T, 4), k=keys)
    return Forward(number, in_slots([Record(name, [record_call(call, {}, True, Copies())])]))


@pytest.mark.parametrize(
    ("T", "S", "continues"),
    [(1, 6, True), (3, 8, True), (5, 5, False), (1, 7, False), (2, 5, False), (1, 9, False)],
)
def test_keys_that_grew_by_the_new_queries_continue_a_generation(T, S, continues):
    assert run(1, T, S).continues(run(0, 5, 5)) is continues


def test_another_batch_other_heads_or_another_layer_continue_nothing():
    first = run(0, 5, 5)
    assert not run(1, 1, 6, B=3).continues(first)
    assert not run(1, 1, 6, H=4).continues(first)
    assert not run(1, 1, 6, name="h.1").continues(first)


def test_a_full_cache_continues_where_its_keys_are_those_of_before():
    keys = torch.randn(2, 3, 5, 4)
    first = run(0, 5, 5, keys=keys)
    assert run(1, 1, 5, keys=keys).continues(first)
    moved_up = torch.cat([keys[:, :, 1:], torch.randn(2, 3, 1, 4)], 2)
    assert run(1, 1, 5, keys=moved_up).continues(first)
    assert not run(1, 1, 5).continues(first)


def test_appended_rows_follow_those_of_before():
    first, later = run(0, 5, 5), run(1, 1, 6)
    first.append(later)
    assert first.number == 1
    (record,) = first.records.values()
    assert record.sizes == (2, 3, 6, 6)


def test_a_module_that_runs_twice_has_two_slots():
    records = [Record(name) for name in ("a", "b", "a")]
    slots = in_slots(records)
    assert list(slots) == [("a", 0), ("b", 0), ("a", 1)]
    assert [slot is record for slot, record in zip(slots.values(), records, strict=True)] == [True] * 3
