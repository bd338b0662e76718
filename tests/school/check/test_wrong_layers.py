"""The wrong layers that `regard check` is measured by, and what the docs say of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks.check.run as benchmark
from benchmarks.check.cases import SourceEdit, WrongLayer, are_compatible, pairs, read_edits, right_layers, wrong_layers
from benchmarks.check.published import PUBLISHED
from benchmarks.check.tables import CheckTally, below_the_bar, rows, total
from regard.mistakes.search import MISTAKES
from regard.school.check.check import check_subject
from regard.school.check.request import Request
from regard.school.check.verdict import Finding, Verdict
from sampled import quick_every
from school.check.learner import subject_of

TABLE = Path(__file__).parents[3] / "docs" / "check" / "table.md"
PUBLISHED_CASES = wrong_layers("published.txt")
ACCEPTED = {"torchcode_gqa": 12, "torchcode_mha": 0, "torchcode_causal": 5, "deepml_94": 5, "deepml_107": 4}


def test_every_edit_fits_its_layer_and_leaves_python():
    for name, text in right_layers().items():
        compile(text, name, "exec")
    for file in ("mistakes.txt", "unknown.txt", "published.txt"):
        for case in wrong_layers(file):
            compile(case.source, case.layer, "exec")
            assert case.source != right_layers()[case.layer]
            assert case.lines
    assert SourceEdit("x", "loop", (("not there", "y"),)).apply(right_layers()["loop"]) is None


def test_every_mistake_is_in_at_least_five_layers():
    layers = {}
    for edit in read_edits():
        layers.setdefault(edit.name, set()).add(edit.layer)
    assert {name: names for name, names in layers.items() if len(names) < 5} == {}
    assert len(layers) > 50


def test_every_common_mistake_that_is_simulated_has_a_wrong_layer():
    """By an edit, or by a stranger; variants of a family, and what only a text can show, are in tests/mistakes."""
    strangers = json.loads((Path(__file__).parent / "strangers" / "names.json").read_text(encoding="utf-8"))
    edited = (*{edit.name for edit in read_edits()}, *(name for names in strangers.values() for name in names))
    common = [one for one in MISTAKES if not (one.written or one.rare or one.family)]
    assert [one.name for one in common if not one.name.startswith(edited)] == []


def test_pairs_are_of_one_layer_and_fit_in_any_order():
    cases = pairs()
    assert len(cases) > 1000
    assert all(len(case.names) == 2 for case in cases)


def test_mistakes_about_one_mask_or_that_are_one_function_together_are_no_pair():
    assert not are_compatible("no causal mask", "mask polarity inverted")
    assert are_compatible("no causal mask", "no scale")
    assert not are_compatible("wrong sign of infinity", "softmax over the heads")
    assert are_compatible("wrong sign of infinity", "softmax over the queries")


def test_the_table_in_the_docs_has_every_mistake_and_its_layers():
    lines = [line.strip("| ").split(" | ") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    kept = {cells[0]: (int(cells[1]), cells[2]) for cells in lines if len(cells) == 6 and cells[1].isdigit()}
    edits = read_edits()
    for name in {edit.name for edit in edits}:
        number = sum(edit.name == name for edit in edits)
        assert kept[name] == (len({edit.layer for edit in edits if edit.name == name}), f"{number}/{number}")
    assert kept["all"][1] == f"{len(edits)}/{len(edits)}"
    unknown = len(read_edits("unknown.txt"))
    assert kept["without a name (named: the step)"][1] == f"{unknown}/{unknown}"
    text = TABLE.read_text()
    assert f"{len(right_layers())} right layers at 5 sizes with 3 seeds: 0 refused" in text
    page = (TABLE.parents[1] / "check.md").read_text()
    assert f"| {len({edit.name for edit in edits})} known mistakes | {len(edits)} | {len(edits)} |" in page
    assert f"| {unknown} mistakes without a name (named: the first step that differs) | {unknown} |" in page
    for name in PUBLISHED:
        assert f"| {name} | {sum(case.layer == name for case in PUBLISHED_CASES)} |" in text


@pytest.mark.parametrize("name", PUBLISHED)
def test_right_layers_pass_the_published_check_and_ours(name, tmp_path):
    subject = subject_of(right_layers()[name], tmp_path)
    assert PUBLISHED[name](subject.target) == ""
    assert check_subject(subject, Request()).findings == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_wrong_layers_that_a_published_check_accepts_are_counted(name, tmp_path):
    cases = [case for case in PUBLISHED_CASES if case.layer == name]
    answers = [PUBLISHED[name](subject_of(case.source, tmp_path).target) for case in cases]
    assert answers.count("") == ACCEPTED[name]
    assert set(answers) <= {"", "Output does not match reference"}


@pytest.mark.parametrize("case", quick_every(6, PUBLISHED_CASES, lambda case: f"{case.names[0]} in {case.layer}"))
def test_ours_accepts_none_of_them_and_names_each(case, tmp_path):
    (finding,) = check_subject(subject_of(case.source, tmp_path), Request()).mistakes
    assert finding.name.startswith(case.names[0])


def test_the_benchmark_prints_and_keeps_its_tables(monkeypatch, tmp_path, capsys):
    cases = {"mistakes.txt": wrong_layers()[:2], "unknown.txt": [], "published.txt": PUBLISHED_CASES[:1]}
    monkeypatch.setattr(benchmark, "right_layers", lambda: {"single": right_layers()["single"]})
    monkeypatch.setattr(benchmark, "wrong_layers", lambda file="mistakes.txt": cases[file])
    monkeypatch.setattr(benchmark, "pairs", list)
    monkeypatch.setattr(benchmark, "PUBLISHED", {"torchcode_gqa": PUBLISHED["torchcode_gqa"]})
    monkeypatch.setattr(benchmark, "SEEDS", (1,))
    table = tmp_path / "kept" / "table.md"
    assert benchmark.main(["--pairs", "0", "--table", str(table)]) == 1  # two layers are fewer than five
    text = capsys.readouterr().out
    assert "1 right layers at 5 sizes with 1 seeds: 0 refused" in text
    assert "split without transpose       2     2/2      2      0   2/2" in text
    assert "torchcode_gqa             1           1               0             1" in text
    assert "Below the bar:\n  split without transpose: in 2 layers; it must be in 5" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "| split without transpose | 2 | 2/2 | 2 | 0 | 2/2 |" in table.read_text()


@pytest.mark.slow
def test_a_layer_that_is_wrong_is_refused_at_every_size(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "SEEDS", (1,))
    problems = benchmark.refused("single", right_layers()["single"].replace("** 0.5", "** 0.25"), tmp_path)
    assert len(problems) == 5
    assert problems[0].startswith("single at ProbeSizes(d_in=13, num_heads=3, head_dim=7")


CASE = WrongLayer(("no scale",), "loop", "", frozenset({7, 8}))


def tally(*cases):
    result = CheckTally()
    for case, finding in cases:
        result.add(case, Verdict("Attention", "attention", [finding]), 0.25)
    return result


def test_what_is_caught_named_and_located_is_counted():
    right = tally((CASE, Finding("no scale", "", line=8)))
    assert (right.row("no scale"), right.missed) == (["no scale", "1", "1/1", "1", "0", "1/1"], [])
    other = tally((CASE, Finding("missing root", "", line=7)))
    assert other.row("no scale") == ["no scale", "1", "1/1", "0", "1", "0/0"]
    assert other.missed == ["no scale in loop: missing root"]
    both = {"a": right, "b": replace(other, layers={"b"})}
    assert rows(both)[-1] == ["all", "2", "2/2", "1", "1", "1/1"]
    assert total(both).seconds == [0.25, 0.25]


def test_the_step_of_a_mistake_without_a_name_counts_as_its_name():
    case = replace(CASE, names=("temperature of 2: scaled",))
    one = CheckTally()
    one.add_unknown(case, Verdict("Attention", "attention", [Finding("", "", step="scaled", line=7)]), 0.25)
    one.add_unknown(case, Verdict("Attention", "attention", [Finding("no scale", "", step="scaled", line=9)]), 0.25)
    assert one.row("unknown") == ["unknown", "1", "2/2", "2", "1", "1/2"]
    assert one.missed == ["temperature of 2: scaled in loop: no scale"]


def good(layers=5):
    return tally(*((replace(CASE, layer=str(i)), Finding("no scale", "", "", line=7)) for i in range(layers)))


@pytest.mark.parametrize(
    ("known", "unknown", "says"),
    [
        (good(), good(), []),
        (good(4), good(), ["no scale: in 4 layers; it must be in 5"]),
        (replace(good(), caught=4), good(), ["known mistakes: 4 of 5 caught; it must be all"]),
        (replace(good(), named=4), good(), ["known mistakes: 4 of 5 named; it must be 95%"]),
        (replace(good(), located=4), good(), ["lines of known mistakes: 4 of 5 right; it must be 90%"]),
        (good(), replace(good(), named=4), ["steps: 4 of 5 named; it must be 90%"]),
        (good(), replace(good(), wrong_names=1), ["a mistake without a name got a name 1 times"]),
    ],
)
def test_what_is_below_the_bar_is_told(known, unknown, says):
    assert list(below_the_bar({"no scale": known}, good(), unknown)) == says
