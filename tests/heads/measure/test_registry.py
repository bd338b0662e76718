"""The registry: one definition of every statistic, which code, files and documentation share."""

import math
import re
from pathlib import Path

import pytest

from heads.dense import random_call
from regard.heads.measure import registry, statistics
from regard.heads.measure.registry import STATISTICS, STORED, Join, Start
from regard.heads.report.files import _AXES, _INTEGERS
from regard.heads.report.views import Head

PAGE = Path(__file__).parents[3] / "docs" / "watch.md"


def test_the_table_in_the_documentation_is_the_registry():
    section = PAGE.read_text(encoding="utf-8").split("\n## Statistics\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", section, re.MULTILINE)
    assert rows == [(one.name, one.formula, one.unit) for one in STATISTICS]


def test_the_documentation_says_what_is_not_in_the_default_set():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    others = [f"`{one.name}`" for one in STATISTICS if not one.default and not one.needs_tokens]
    assert f"The default set is all of them except {', '.join(others[:-1])} and {others[-1]};" in text


def test_names_of_statistics_and_of_their_tensors_are_different():
    assert len({one.name for one in STATISTICS}) == len(STATISTICS)
    assert len(STORED) == sum(len(one.stored) for one in STATISTICS)


@pytest.mark.parametrize("one", STATISTICS, ids=lambda one: one.name)
def test_what_is_measured_has_the_axes_and_the_kind_of_number_that_the_registry_says(one):
    B, H, T, S = 2, 3, 5, 7
    call = random_call(B, H, T, S, tokens=random_call(B, T=T, S=S).attention.k[:, 0, :, 0].mul(3).long())
    measured = statistics.measure(call, frozenset({one.name, "received"}))
    for tensor in one.stored:
        sizes = {"B": B, "H": H, "T": T, "S": S}
        found = measured[tensor].shape
        assert len(found) == len(one.axes)
        assert all(axis == "?" or size == sizes[axis] for axis, size in zip(one.axes, found, strict=True))
        assert measured[tensor].is_floating_point() == (tensor not in one.keys)


@pytest.mark.parametrize("one", STATISTICS, ids=lambda one: one.name)
def test_every_statistic_can_be_read_from_a_head_and_written_to_a_file(one):
    assert hasattr(Head, one.name)
    for tensor in one.stored:
        assert _AXES[tensor] == one.axes
        assert (tensor in _INTEGERS) == (tensor in one.keys)


def test_only_what_has_a_mean_is_a_column():
    for one in STATISTICS:
        assert one.averaged or one.heading is None
        assert one.heading is not None or not one.compared


def test_targets_are_joined_by_where_they_are_and_tokens_by_where_they_were_found():
    for one in STATISTICS:
        if one.target is not None:
            assert (one.join is Join.TARGET) == (one.target.start is not Start.EARLIER)
            assert one.positional == (one.target.start is Start.OWN)


def test_the_largest_possible_value_follows_the_number_of_keys():
    most = {one.name: [one.most(keys) for keys in (1, 2, 9)] for one in STATISTICS}
    assert most.pop("entropy") == pytest.approx([math.log(2), math.log(2), math.log(9)])
    assert most.pop("distance") == [1.0, 1.0, 8.0]
    assert set(map(tuple, most.values())) == {(1.0, 1.0, 1.0)}


def test_lists_of_names_keep_the_order_of_the_registry():
    order = [one.name for one in STATISTICS]
    for names in (registry.DEFAULT, registry.AVERAGED, registry.ROWS, registry.COLUMNS, tuple(registry.TARGETS)):
        assert list(names) == [name for name in order if name in names]
