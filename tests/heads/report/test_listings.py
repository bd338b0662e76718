"""What a report lists: sequences that print as tables, chosen heads, and changes between two reports."""

import math
from collections.abc import Sequence

import pytest
import torch

from heads import dense
from heads.dense import pattern, random_call
from heads.made_calls import made_call
from heads.reports import seen_of, steps_seen, two_layers
from regard.heads.report.listings import HeadSummary, Listing, compare
from regard.heads.report.roles import Role
from regard.heads.report.views import Head


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def test_a_listing_is_a_sequence():
    listing = Listing(iter("abc"))
    assert isinstance(listing, Sequence)
    assert (len(listing), list(listing), listing[-1], listing[1:]) == (3, ["a", "b", "c"], "c", ["b", "c"])


@pytest.mark.parametrize(
    "listing", [two_layers().heads(), two_layers().at(1, text=0)], ids=lambda one: type(one).__name__
)
def test_what_a_report_lists_prints_as_its_table_and_in_a_notebook_as_html(listing):
    assert isinstance(listing, Listing)
    assert repr(listing) == listing.table(width=80)
    assert len(listing.table(all=True).splitlines()) >= len(listing)
    assert listing._repr_html_().startswith("<")


def seen():
    """Layer 0: previous token and broad; layer 1: a clearer previous token and first token."""
    previous, broad = pattern(lambda i: max(i - 1, 0), 17, weight=0.8), pattern(lambda i: 0, 17, weight=0.0)
    clearer, first = pattern(lambda i: max(i - 1, 0), 17, weight=0.95), pattern(lambda i: 0, 17, weight=0.9)
    return seen_of(
        made_call("h.0", weights=torch.cat([broad, previous], 1)),
        made_call("h.1", weights=torch.cat([clearer, first], 1)),
    )


def keys(heads):
    return [(head.layer, head.head) for head in heads]


def test_heads_are_chosen_by_role_and_layer():
    assert keys(seen().heads()) == seen().order() == [(1, 0), (0, 1), (1, 1), (0, 0)]
    assert keys(seen().heads(role="previous token")) == [(1, 0), (0, 1)]
    assert keys(seen().heads(role=["broad", "first token"])) == [(1, 1), (0, 0)]
    assert keys(seen().heads(layer="h.1")) == keys(seen().heads(layer=[-1])) == [(1, 0), (1, 1)]
    assert keys(seen().heads(role="induction")) == []


def test_heads_are_sorted_by_a_statistic_the_largest_first():
    assert keys(seen().heads(by="entropy"))[0] == (0, 0)
    assert keys(seen().heads(by="entropy", descending=False)) == keys(seen().heads(by="entropy"))[::-1]
    assert keys(seen().heads(role="previous token", by="score")) == [(1, 0), (0, 1)]


def test_heads_are_views_and_slices_are_lists():
    heads = seen().heads(by="sink")
    assert isinstance(heads[0], Head)
    assert keys(heads[:2]) == keys(heads)[:2]
    assert [one.role.name for one in heads[:1].summaries] == [heads[0].role.name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role": "copying"}, r"no role is called 'copying'; roles are induction, duplicate, previous token, self"),
        ({"by": "size"}, r"heads cannot be sorted by 'size'; by is one of entropy, distance, sink"),
        ({"descending": True}, r"descending=True needs a statistic to sort by, such as by='entropy'"),
        ({"layer": 2}, r"layer 2 does not exist: this report has 2 layers, 0 to 1"),
        ({"by": "induction"}, r'"induction" has no value in these heads'),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(options, message):
    with pytest.raises(ValueError, match=message):
        seen().heads(**options)


def test_of_several_forwards_one_is_chosen():
    weights = pattern(lambda i: 0, 5, weight=0.9)
    twice = steps_seen([made_call("h", weights=weights), made_call("h", weights=weights)])
    with pytest.raises(ValueError, match=r"2 forwards were seen; choose one: seen\.forwards\[0\]\.heads\(…\)"):
        twice.heads()
    assert len(two_layers().heads()) == 6


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
