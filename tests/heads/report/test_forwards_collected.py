"""Collecting: what is kept of a call, and which names of statistics are known."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.reports import seen_of
from regard.heads.measure import statistics
from regard.heads.measure.registry import DEFAULT
from regard.heads.report import forwards
from regard.heads.report.forwards import Collection

MEASURE = statistics.measure


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def test_written_out_weights_are_kept_only_while_they_are_small_or_asked_for(monkeypatch):
    calls = [made_call("a", weights=torch.rand(1, 2, 5, 5).softmax(-1)) for _ in range(3)]
    monkeypatch.setattr(forwards, "WEIGHTS_KEPT", 2 * 2 * 25 * 4)
    by_itself, asked = seen_of(*calls), seen_of(*calls, keep=True)
    assert_close(by_itself[1, 0].weights(), calls[1].attention.weights[:, 0].double())
    with pytest.raises(ValueError, match="watch with keep=True"):
        by_itself[2, 0].weights()
    assert_close(asked[2, 0].weights(), calls[2].attention.weights[:, 0].double())
    assert by_itself.summary() == asked.summary()


def test_a_call_of_another_forward_or_of_the_same_layer_again_begins_a_new_forward():
    collected = Collection(None, keep=None)
    for forward, layer in [(0, 0), (0, 1), (1, 0), (1, 0)]:
        collected.add(forward, layer, random_call(T=5))
    assert [len(one.records) for one in collected._forwards] == [2, 1, 1]


def test_the_default_set_can_be_extended_and_a_single_name_is_a_set_of_one():
    assert Collection(("default", "received_mean"), None).collect == {*DEFAULT, "received", "received_mean"}
    assert Collection("entropy", None).collect == {"entropy"}
    with pytest.raises(ValueError, match="entropie"):
        Collection(["entropie"], None)


@pytest.mark.parametrize("keep", [None, False])
@pytest.mark.parametrize("T", [2, 5, 7, 13, 31])
def test_a_module_that_attends_again_with_the_same_weights_is_named(T, keep, monkeypatch):
    """As in DiffLlama, which multiplies the same weights with two halves of its values."""
    monkeypatch.setattr(statistics, "measure", MEASURE)
    collected, call, other = Collection(None, keep=keep), random_call(T=T), random_call(T=T)
    for layer, one in enumerate([call, call, other]):
        collected.add(0, layer, one)
    (forward,) = collected._forwards
    said = ("weights: equal to those of the call before, in the same module; the values may differ",)
    marks = [record.steps[0].call.origin.basis.marks for record in forward.records.values()]
    assert marks == [(), said, ()]
