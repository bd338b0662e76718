"""Comparing two reports."""

import math

import pytest
import torch

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.reports import seen_of, two_layers
from regard.heads.report.compare import HeadSummary, compare
from regard.heads.report.roles import Role


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def test_comparing_a_report_with_itself_finds_no_change():
    seen = two_layers()
    comparison = seen.compare(seen)
    assert [change.size for change in comparison] == [0.0] * 6
    assert len(comparison.changed(0.01)) == 0


def test_comparing_names_the_head_that_changed_first():
    even, previous = (dense.pattern(lambda i: max(i - 1, 0), 17, weight=w) for w in (0.0, 0.9))
    before = seen_of(made_call("a", weights=torch.cat([even, even], 1)))
    after = seen_of(made_call("a", weights=torch.cat([even, previous], 1)))
    first, second = before.compare(after)
    assert (first.layer, first.head, first.role) == (0, 1, "broad → previous token")
    gained = after[0, 1].summary["previous"] - before[0, 1].summary["previous"]
    assert first.differences["previous"] == pytest.approx(gained)
    assert first.size >= gained > 0.7
    assert second.size == 0
    lines = repr(before.compare(after).changed(0.1)).splitlines()
    assert lines[0].startswith("  1 of 2 heads")
    assert max(map(len, lines)) <= 80


def test_reports_of_different_models_are_not_compared():
    with pytest.raises(ValueError, match=r"these have 1 layers with 3 heads and 1 layers with 2; watch the same"):
        seen_of(random_call()).compare(seen_of(random_call(H=2)))


def test_means_are_compared_as_shares_of_what_they_can_be():
    portrait = HeadSummary(Role("mixed", 0.0, 0.0, ""), {"entropy": math.log(3), "distance": 4.0, "sink": 0.25}, keys=9)
    assert portrait.shares() == pytest.approx({"entropy": 0.5, "distance": 0.5, "sink": 0.25})


def test_a_slice_of_a_comparison_is_a_list_of_changes():
    comparison = two_layers().compare(two_layers())
    assert [change.size for change in comparison[:2]] == sorted((change.size for change in comparison), reverse=True)[
        :2
    ]
    assert comparison.changed(2.0).heads == comparison.heads == 6


def summary(**means):
    return HeadSummary(Role("mixed", 0.0, 0.0, ""), means, keys=17)


def test_a_change_names_the_statistic_that_changed_most():
    before, after = summary(entropy=1.0, sink=0.2), summary(entropy=1.1, sink=0.7)
    change = compare({(0, 0): before}, {(0, 0): after})[0]
    assert (change.most, change.values, change.size) == ("sink", (0.2, 0.7), pytest.approx(0.5))
    nothing = compare({(0, 0): summary(sink=math.nan)}, {(0, 0): summary(sink=0.5)})[0]
    assert (nothing.most, nothing.size) == ("", 0.0)
