"""A wrong command line in the words of regard, whatever the version of typer says."""

import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.commands.terminal.usage import explain_usage, read_argument, typed_value


def refused(message, *flags, **more):
    """An error of typer."""
    parameter = SimpleNamespace(opts=list(flags))
    return SimpleNamespace(format_message=lambda: message, param=parameter, **more)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Invalid value for '--tokens': Input should be greater than or equal to 1", "--tokens 0 must be at least 1"),
        ("Invalid value for '--tokens': 0 is not in the range x>=1.", "--tokens 0 must be at least 1"),
        (
            "Invalid value for '--tokens': Input should be a valid integer, unable to",
            "--tokens 0 must be a whole number",
        ),
        ("Invalid value for '--tokens': '0' is not a valid int.", "--tokens 0 must be a whole number"),
        ("Invalid value for '--tokens': '0' is not a valid float.", "--tokens 0 must be a number"),
        ("Invalid value for '--tokens': too few", "--tokens 0: too few"),
        ("Missing option '--tokens'.", "Missing option '--tokens'"),
    ],
)
def test_a_value_is_named_with_its_flag_and_its_rule(message, expected):
    assert explain_usage(refused(message, "--tokens"), ["--tokens", "0"], "regard trace") == expected


def test_an_option_without_its_value_is_named():
    error = refused("Option '--step' requires an argument.", option_name="--step")
    assert explain_usage(error, ["--step"], "regard trace") == "--step needs a value"


def test_a_command_that_has_another_name_in_a_terminal_is_pointed_to():
    found = explain_usage(refused("No such command 'watch'."), [], "regard")
    assert found == "No such command 'watch'; regard see --model DIRECTORY shows what every head of a model does"


def test_words_after_the_text_are_a_model_files_or_lack_quotes(tmp_path):
    model = SimpleNamespace(command=SimpleNamespace(params=[SimpleNamespace(opts=["--model"])]))
    error = refused("Got unexpected extra argument(s) (cat)", ctx=model)

    def explain(*typed):
        return explain_usage(error, typed, "regard see")

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.txt").write_text("a")
    folder, file = str(tmp_path), str(tmp_path / "a.txt")
    assert explain(folder, "the", "cat") == f'{folder} is a model, not a text: regard see --model {folder} "the cat"'
    assert explain(file, file) == f"one text at a time, and these are 2 files: regard see {file}"
    assert explain("the", "cat") == 'a text of several words needs quotes: regard see "the cat"'
    assert explain("the", "cat", "--all") == "a text of several words needs quotes; left over: cat"


def test_the_last_value_counts():
    assert typed_value(["-o", "--output"], ["-o", "a.html", "--output", "b.html"]) == "b.html"
    assert typed_value(["--tokens"], ["--heads", "3"]) is None


def test_bytes_that_python_could_not_decode_are_read_as_utf_8():
    assert read_argument("Größe".encode().decode("ascii", "surrogateescape")) == "Größe"
    assert read_argument("Größe") == "Größe"
    with pytest.raises(
        ValueError, match=r"^caf\? is not UTF-8 text; type it where the locale is UTF-8, or give a file$"
    ):
        read_argument("caf\udce9")


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_usage_names_arguments_without_nested_brackets(command):
    usage = CliRunner().invoke(app, [command, "--help"]).output.splitlines()[0]
    assert re.fullmatch(rf"Usage: .*{command} \[OPTIONS\](?: \[?[A-Z]+(?:\[:NAME\])?\]?(?:\.\.\.)?)*", usage), usage
