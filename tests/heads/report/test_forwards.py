"""One run of a model, and whether it continues the run before."""

import pytest
import torch

from heads.made_calls import made_call
from regard.attention.masks import padding
from regard.heads.calls.copies import Copies
from regard.heads.report.forwards import Forward, in_slots
from regard.heads.report.record import Record, record_call


def random_keys(S, B=2, H=3):
    return torch.randn(B, H, S, 4)


def run(number, T, keys, name="h.0", keep=True, **options):
    """A forward of one layer with T queries and these keys."""
    B, H, _, D = keys.shape
    call = made_call(name, q=torch.randn(B, H, T, D), k=keys, **options)
    return Forward(number, in_slots([Record(name, [record_call(Copies().of_call(call, keep), {}, keep)])]))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("T", "S", "continues"),
    [(1, 6, True), (3, 8, True), (5, 5, False), (1, 7, False), (2, 5, False), (1, 9, False)],
)
def test_keys_that_grew_by_the_new_queries_continue_a_generation(T, S, continues, keep):
    keys = random_keys(9)
    rows = run(1, T, keys[:, :, :S], keep=keep).rows_in(run(0, 5, keys[:, :, :5], keep=keep))
    assert rows == ([0, 1] if continues else None)


@pytest.mark.parametrize("keep", [True, False])
def test_other_keys_of_the_same_size_continue_nothing(keep):
    keys = random_keys(6)
    first = run(0, 5, keys[:, :, :5], keep=keep)
    assert run(1, 1, random_keys(6), keep=keep).rows_in(first) is None
    keys[1, 2, 3, 0] += 1e-6
    assert run(1, 1, keys, keep=keep).rows_in(first) is None


def test_another_batch_other_heads_or_another_layer_continue_nothing():
    keys = random_keys(6, B=3, H=4)
    first = run(0, 5, keys[:2, :3, :5])
    assert run(1, 1, keys[:, :3]).rows_in(first) is None
    assert run(1, 1, keys[:2]).rows_in(first) is None
    assert run(1, 1, keys[:2, :3], name="h.1").rows_in(first) is None
    assert run(1, 1, keys[:2, :3]).rows_in(first) == [0, 1]


def test_a_full_cache_continues_where_its_keys_are_those_of_before():
    keys = random_keys(5)
    first = run(0, 5, keys)
    assert run(1, 1, keys).rows_in(first) == [0, 1]
    moved_up = torch.cat([keys[:, :, 1:], random_keys(1)], 2)
    assert run(1, 1, moved_up).rows_in(first) == [0, 1]
    assert run(1, 1, random_keys(5)).rows_in(first) is None


def test_cross_attention_continues_with_the_same_keys_whatever_the_number_of_queries():
    keys = random_keys(5)
    first, grown = run(0, 7, keys, across=True), random_keys(8)
    first.records |= run(0, 7, grown[:, :, :7], "h.1").records
    for other, rows in ((keys, [0, 1]), (random_keys(5), None)):
        later = run(1, 1, other, across=True)
        later.records |= run(1, 1, grown, "h.1").records
        assert later.rows_in(first) == rows


@pytest.mark.parametrize("keep", [True, False])
def test_texts_that_changed_places_are_found_and_put_in_the_order_of_the_last_step(keep):
    order, keys = [2, 0, 2], random_keys(6, B=3)
    first = run(0, 5, keys[:, :, :5], keep=keep, mask=padding([5, 4, 3]), real=torch.eye(3, 5) > 0)
    (record,) = first.records.values()
    record.steps[0].measured["entropy"] = torch.arange(3.0)[:, None, None].expand(3, 3, 5)
    later = run(1, 1, torch.cat([keys[order, :, :5], random_keys(1, B=3)], 2), keep=keep)
    rows = later.rows_in(first)
    assert rows == order
    first.append(later, rows)
    first.settle()
    assert record.steps[0].measured["entropy"][:, 0, 0].tolist() == [2.0, 0.0, 2.0]
    assert torch.equal(record.steps[0].call.attention.mask.keep, torch.tensor([3, 5, 3]))
    assert torch.equal(record.steps[0].call.origin.real, (torch.eye(3, 5) > 0)[order])
    if keep:
        assert torch.equal(record.call(0).attention.k, keys[order, :, :5])


def test_appended_rows_follow_those_of_before():
    keys = random_keys(6)
    first, later = run(0, 5, keys[:, :, :5]), run(1, 1, keys)
    first.append(later, [0, 1])
    assert first.number == 1
    (record,) = first.records.values()
    assert record.sizes == (2, 3, 6, 6)


def test_a_module_that_runs_twice_has_two_slots():
    records = [Record(name) for name in ("a", "b", "a")]
    slots = in_slots(records)
    assert list(slots) == [("a", 0), ("b", 0), ("a", 1)]
    assert [slot is record for slot, record in zip(slots.values(), records, strict=True)] == [True] * 3
