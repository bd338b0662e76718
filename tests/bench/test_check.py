import regard.bench.check as bench
from regard.bench.check import CheckTally, check_source, main
from regard.bench.check_cases import right_layers, wrong_layers


def test_a_tally_counts_names_and_lines(tmp_path):
    case = wrong_layers()[0]
    tally = CheckTally()
    tally.add(case, *check_source(case.source, tmp_path))
    assert (tally.cases, tally.caught, tally.named, tally.wrong_names) == (1, 1, 1, 0)
    assert (tally.located, tally.lines) == (1, 1)


def test_the_tables_are_printed(monkeypatch, capsys):
    few = wrong_layers()[:2]
    monkeypatch.setattr(bench, "right_layers", lambda: {"loop": right_layers()["loop"]})
    monkeypatch.setattr(bench, "wrong_layers", lambda file="mistakes.txt": few if file == "mistakes.txt" else [])
    monkeypatch.setattr(bench, "pairs", list)
    main(["--pairs", "0"])
    text = capsys.readouterr().out
    assert "right as it stands: loop: right" in text
    assert "split without transpose" in text
    assert "without a name" in text
    assert max(map(len, text.splitlines())) <= 80
