"""The table of two atlases."""

import math

from regard.heads.atlas.difference import AtlasDifference, HeadChange
from regard.heads.atlas.result import Atlas, AtlasHead
from regard.heads.report.roles import Role
from regard.support.drawing import as_html, as_text


def head(layer, number, role):
    kind = type("OneHead", (AtlasHead,), {"role": Role(role, 0.5, 0.4, "evidence")})
    return kind(Atlas([]), layer, number)


def found():
    changed = HeadChange(head(4, 3, "induction"), head(4, 3, "mixed"), "sink", (0.25, 0.75), 0.0123, 0.45)
    moved = HeadChange(head(0, 1, "self"), head(0, 2, "self"), "self", (0.5, 0.5), 0.01, 0.0)
    same = HeadChange(head(1, 1, "self"), head(1, 1, "self"), "", (math.nan, math.nan), math.nan, 0.0)
    return AtlasDifference([same, moved, changed], (2, 0))


def test_changes_beyond_noise_come_first_then_heads_that_moved():
    text = as_text(found(), 100)
    heading, _, columns, first, second, *_ = text.splitlines()
    assert heading == "  1 of 3 heads changed beyond noise · 1 in another place · 2 of the first have no partner"
    assert columns.split() == ["head", "role", "most", "before", "after", "change", "noise"]
    assert " ".join(first.split()) == "4.3 induction → mixed first 0.25 0.75 +0.50 0.012"
    assert " ".join(second.split()) == "0.1 → 0.2 self self 0.50 0.50 0.00 0.010"
    assert "1.1" not in text
    assert "1.1" in as_text(found(), 100, all=True)
    assert "… and 1 more: --all" in as_text(found(), 100, few=1, more="--all")
    assert "<td>4.3</td>" in as_html(found())


def test_no_change_is_said():
    assert as_text(AtlasDifference([], (0, 0)), 80).endswith("nothing changed beyond its noise")
