from dataclasses import replace

import pytest

from regard.bench.check_cases import WrongLayer
from regard.bench.check_tables import CheckTally, below_the_bar, rows, total
from regard.school.check.verdict import Finding, Verdict

CASE = WrongLayer(("no scale",), "loop", "", frozenset({7, 8}))


def verdict(*findings):
    return Verdict("Attention", "attention", list(findings))


def tally(*cases):
    result = CheckTally()
    for case, seen in cases:
        result.add(case, seen, 0.25)
    return result


def test_a_case_is_caught_named_and_located():
    one = tally((CASE, verdict(Finding("no scale", "", line=8))))
    assert one.row("no scale") == ["no scale", "1", "1/1", "1", "0", "1/1"]
    assert one.missed == []


def test_another_name_is_wrong_and_told():
    one = tally((CASE, verdict(Finding("missing root", "", line=7))))
    assert one.row("no scale") == ["no scale", "1", "1/1", "0", "1", "0/0"]
    assert one.missed == ["no scale in loop: missing root"]


def test_a_warning_beside_the_mistake_is_no_wrong_name():
    warning = Finding("fully masked row gives NaN", "", is_warning=True)
    assert tally((CASE, verdict(Finding("no scale", ""), warning))).wrong_names == 0


def test_the_step_of_a_mistake_without_a_name_counts_as_its_name():
    case = replace(CASE, names=("temperature of 2: scaled",))
    one = CheckTally()
    one.add_unknown(case, verdict(Finding("", "", step="scaled", line=7)), 0.25)
    one.add_unknown(case, verdict(Finding("no scale", "", step="scaled", line=9)), 0.25)
    assert one.row("unknown") == ["unknown", "1", "2/2", "2", "1", "1/2"]
    assert one.missed == ["temperature of 2: scaled in loop: no scale"]


def test_the_last_row_is_all_together():
    both = {name: tally((replace(CASE, layer=name), verdict(Finding("no scale", "")))) for name in ("a", "b")}
    assert rows(both)[-1] == ["all", "2", "2/2", "2", "0", "0/0"]
    assert total(both).seconds == [0.25, 0.25]


def good(layers=5):
    return tally(*((replace(CASE, layer=str(i)), verdict(Finding("no scale", "", "", line=7))) for i in range(layers)))


def test_what_is_good_is_above_the_bar():
    assert list(below_the_bar({"no scale": good()}, good(), good())) == []


@pytest.mark.parametrize(
    ("known", "unknown", "says"),
    [
        (good(4), good(), "no scale: in 4 layers; it must be in 5"),
        (replace(good(), caught=4), good(), "known mistakes: 4 of 5 caught; it must be all"),
        (replace(good(), named=4), good(), "known mistakes: 4 of 5 named; it must be 95%"),
        (replace(good(), located=4), good(), "lines of known mistakes: 4 of 5 right; it must be 90%"),
        (good(), replace(good(), named=4), "steps: 4 of 5 named; it must be 90%"),
        (good(), replace(good(), wrong_names=1), "a mistake without a name got a name 1 times"),
    ],
)
def test_what_is_below_the_bar_is_told(known, unknown, says):
    assert list(below_the_bar({"no scale": known}, good(), unknown)) == [says]
