"""The command as a person types it."""

import re
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from regard.cli import app, main

run = CliRunner()


def test_the_version_is_that_of_the_package():
    result = run.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"regard {metadata.version('regard')}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["trace", "--tokens", "3", "--d-model", "770"],
            "--d-model 770 is not divisible by --heads 12; try --heads 11, 14 or 22",
        ),
        (["trace", "  "], "the sentence is empty"),
        (["trace", "hello", "--tokens", "3"], "give a sentence or --tokens, not both"),
    ],
)
def test_a_missed_rule_is_one_line_and_no_traceback(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert message in capsys.readouterr().err


def test_the_installed_command_answers():
    command = [sys.executable, "-c", "from regard.cli import main; main()", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Attention you can read, see, check and ship." in done.stdout


COMMANDS = ["trace", "watch", "generate", "train", "bench"]


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_the_short_flag_shows_the_same_help(arguments):
    short, long = (run.invoke(app, [*arguments, flag]) for flag in ("-h", "--help"))
    assert (short.exit_code, long.exit_code) == (0, 0)
    assert short.output == long.output
    assert "Usage: " in short.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_command_with_a_sentence(name):
    assert re.search(rf"^  {name} +[A-Z].*\.$", run.invoke(app, ["--help"]).output, re.MULTILINE)


LAZY = [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS), ["bench", "layer", "--help"]]


@pytest.mark.parametrize("arguments", LAZY, ids=" ".join)
def test_help_and_version_do_not_import_torch(arguments):
    code = (
        "import sys; from regard.cli import app; sys.argv = ['regard', *sys.argv[1:]]\n"
        "try: app()\nexcept SystemExit: print(sorted({'torch', 'rich', 'transformers', 'jaxtyping'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["watch", "--head", "x"], 2)])
def test_under_torchrun_a_process_is_left_at_once_with_all_that_was_said(arguments, status, monkeypatch, capfd):
    def left(code):
        raise RuntimeError(f"left with {code}")

    monkeypatch.setattr(sys, "argv", ["regard", *arguments])
    with pytest.raises(SystemExit, match=str(status)):
        main()
    said = capfd.readouterr()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setattr("regard.cli.os._exit", left)
    with pytest.raises(RuntimeError, match=f"left with {status}"):
        main()
    assert capfd.readouterr() == said
    assert said.out or said.err
