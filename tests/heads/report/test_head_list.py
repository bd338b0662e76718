"""Heads chosen by role and layer, sorted by a statistic."""

import pytest
import torch

from heads import dense
from heads.dense import pattern
from heads.made_calls import made_call
from heads.reports import seen_of, steps_seen, two_layers
from regard.heads.report.views import Head


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


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
