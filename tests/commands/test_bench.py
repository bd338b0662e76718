"""`regard bench` as a person types it."""

import re
import sys

import pytest
from typer.testing import CliRunner

from regard.bench.options import PARSERS
from regard.cli import app, main

OWN_OPTION = {
    "layer": "--shape",
    "memory": "--textbook",
    "watch": "--heads",
    "generate": "--prompt",
    "train": "--compile",
    "cut": "--tokens",
    "check": "--pairs",
}


@pytest.fixture(autouse=True)
def _contexts_of_click(without_shape_checks):
    """typer passes a click.Context, which is no typer.Context: the type checks of a test run would refuse it."""


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("name", PARSERS)
def test_a_benchmark_explains_its_own_options(name, flag):
    result = CliRunner().invoke(app, ["bench", name, flag])
    assert result.exit_code == 0
    assert f"Usage: regard bench {name} [OPTIONS]\n" in result.output
    assert re.search(rf"^  {OWN_OPTION[name]}\b", result.output, re.MULTILINE)


@pytest.mark.parametrize("name", PARSERS)
def test_every_benchmark_is_listed(name):
    assert f"\n  {name} " in CliRunner().invoke(app, ["bench", "--help"]).output


def test_arguments_reach_the_benchmark(monkeypatch):
    from regard.bench import layer

    given = []
    monkeypatch.setattr(layer, "main", given.append)
    arguments = ["--quick", "--shape", "33,3,2,7", "--only", "regard"]
    assert CliRunner().invoke(app, ["bench", "layer", *arguments]).exit_code == 0
    assert given == [arguments]


def test_an_unknown_option_is_refused_by_the_benchmark(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", "bench", "train", "--learning-rate", "1"])
    with pytest.raises(SystemExit, match="2"):
        main()
    message = "regard: unrecognized arguments: --learning-rate 1; see regard bench train --help\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["memory", "--tokens", "0"], "--tokens 0 must be above 0; see regard bench memory --help"),
        (["train", "--quick", "--model", "tiny"], "--quick has a model of its own; leave it out, or --model tiny"),
        (["generate", "--quick", "--new", "99"], "--prompt 7 and --new 99 do not fit quick's context of 64"),
    ],
    ids=" ".join,
)
def test_a_missed_rule_is_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", "bench", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    told = capsys.readouterr().err
    assert told.startswith(f"regard: {message}")
    assert len(told.splitlines()) == 1
