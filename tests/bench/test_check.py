from pathlib import Path

import pytest

import regard.bench.check as bench
from regard.bench.check import check_source, main, refused
from regard.bench.check_cases import read_edits, right_layers, wrong_layers
from regard.bench.published_checks import PUBLISHED

TABLE = Path(__file__).parents[2] / "docs" / "check" / "table.md"


@pytest.fixture
def few(monkeypatch):
    """Two wrong layers, one right one and one published check."""
    cases = {"mistakes.txt": wrong_layers()[:2], "unknown.txt": [], "published.txt": wrong_layers("published.txt")[:1]}
    monkeypatch.setattr(bench, "right_layers", lambda: {"single": right_layers()["single"]})
    monkeypatch.setattr(bench, "wrong_layers", lambda file="mistakes.txt": cases[file])
    monkeypatch.setattr(bench, "pairs", list)
    monkeypatch.setattr(bench, "PUBLISHED", {"torchcode_gqa": PUBLISHED["torchcode_gqa"]})
    monkeypatch.setattr(bench, "SEEDS", (1,))


def test_the_tables_are_printed_and_kept(few, tmp_path, capsys):
    with pytest.raises(SystemExit, match="1"):  # two layers are fewer than five
        main(["--pairs", "0", "--table", str(tmp_path / "kept" / "table.md")])
    text = capsys.readouterr().out
    assert "1 right layers at 5 sizes with 1 seeds: 0 refused" in text
    assert "split without transpose       2     2/2      2      0   2/2" in text
    assert "torchcode_gqa             1           1               0             1" in text
    assert "Below the bar:\n  split without transpose: in 2 layers; it must be in 5" in text
    assert max(map(len, text.splitlines())) <= 80
    kept = (tmp_path / "kept" / "table.md").read_text()
    assert "| split without transpose | 2 | 2/2 | 2 | 0 | 2/2 |" in kept


def test_nothing_is_said_of_bars_that_are_reached(few, monkeypatch, capsys):
    monkeypatch.setattr(bench, "below_the_bar", lambda *tallies: [])
    main(["--pairs", "0"])
    assert "Below the bar" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_layer_that_is_wrong_is_refused_at_every_size(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "SEEDS", (1,))
    found = refused("single", right_layers()["single"].replace("** 0.5", "** 0.25"), tmp_path)
    assert len(found) == 5
    assert found[0].startswith("single at ProbeSizes(d_in=13, num_heads=3, head_dim=7")


def test_a_source_is_checked_and_timed(tmp_path):
    verdict, seconds = check_source(right_layers()["single"], tmp_path)
    assert verdict.is_right
    assert seconds > 0


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
        assert f"| {name} | {sum(case.layer == name for case in wrong_layers('published.txt'))} |" in text
