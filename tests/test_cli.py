"""The command as a person types it."""

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


def test_trace_prints_the_shapes_of_any_size_without_computing_them():
    result = run.invoke(app, ["trace", "--tokens", "100000", "--d-model", "768", "--heads", "12", "--batch", "4"])
    assert result.exit_code == 0
    assert "4 × 12 × 100000 × 100000" in result.output
    assert "2,360,064 parameters" in result.output


def test_trace_keeps_to_eighty_columns():
    result = run.invoke(app, ["trace", "--tokens", "100", "--batch", "4"])
    assert max(map(len, result.output.splitlines())) <= 80
    assert "…" not in result.output


def test_the_worked_example_shows_four_rungs_and_the_books_figures():
    result = run.invoke(app, ["trace"])
    assert result.exit_code == 0
    for title in ("1  simplified", "2  self-attention", "3  causal", "4  multi-head"):
        assert title in result.output
    assert "journey   0.1385   0.2379   0.2333   0.1240   0.1082   0.1581" in result.output


def test_a_sentence_of_ones_own_is_followed_word_by_word():
    result = run.invoke(app, ["trace", "The cat sat on the mat"])
    assert result.exit_code == 0
    assert "6 tokens" in result.output
    assert "weights of head 1" in result.output


def test_the_same_word_has_the_same_vector_each_time():
    once, again = (run.invoke(app, ["trace", "the cat the cat"]).output for _ in range(2))
    assert once == again


def test_grouped_heads_show_their_own_shape():
    result = run.invoke(app, ["trace", "--tokens", "7", "--d-model", "24", "--heads", "4", "--kv-heads", "2"])
    assert "1 × 7 × 2 × 6" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["trace", "--tokens", "3", "--d-model", "770"],
            "d_out (770) must be divisible by num_heads (12); try 768 or 780",
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
    found = subprocess.run(
        [sys.executable, "-c", "from regard.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Attention you can read, see, check and ship." in found.stdout


@pytest.mark.parametrize("name", ["layer", "memory"])
def test_a_benchmark_explains_its_own_options(name, without_shape_checks):
    result = run.invoke(app, ["bench", name, "--help"])
    assert result.exit_code == 0
    assert "usage:" in result.output
    assert "--textbook" in result.output or "--shape" in result.output


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
