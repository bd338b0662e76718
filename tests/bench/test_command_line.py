"""Help and errors of the benchmarks, in the style of every other command."""

import argparse

import pytest

from regard.bench.command_line import BenchParser


@pytest.fixture
def parser():
    made = BenchParser(prog="regard bench x", description="Measure something.")
    made.add_argument("--mode", choices=["one", "two"], help="What. [default: one]")
    made.add_argument("--compile", action=argparse.BooleanOptionalAction, help="Compile. [default: off]")
    made.add_argument(
        "--names", nargs="?", metavar="NAMES", help="A long text " + "that is wrapped " * 5 + "[default: all]"
    )
    made.add_argument("--child", help=argparse.SUPPRESS)
    return made


@pytest.mark.parametrize("columns", ["50", "80", "200"])
def test_help_is_as_wide_as_the_terminal_and_never_wider_than_80(columns, parser, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    lines = parser.format_help().splitlines()
    assert max(map(len, lines)) <= min(int(columns), 80)
    assert lines[:5] == ["Usage: regard bench x [OPTIONS]", "", "  Measure something.", "", "Options:"]
    assert lines[5].startswith("  --mode [one|two]          What.")
    assert lines[6].startswith("  --compile / --no-compile")
    assert any(line.startswith("  --names [NAMES]") for line in lines)
    assert " ".join(parser.format_help().split()).endswith("-h, --help Show this message and exit.")
    assert "--child" not in parser.format_help()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wrong"], "unrecognized arguments: --wrong"),
        (["--mo", "one"], "unrecognized arguments: --mo one"),
        (["--mode", "three"], "--mode three must be one of one, two; see regard bench x --help"),
        (["--mode"], "--mode needs a value; see regard bench x --help"),
    ],
)
def test_an_error_is_one_line_with_status_2(arguments, message, parser, capsys):
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(arguments)
    told = capsys.readouterr().err
    assert told.startswith(f"regard: {message}")
    assert told.endswith("; see regard bench x --help\n")
    assert len(told.splitlines()) == 1
