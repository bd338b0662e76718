"""`regard see` of the model in the package, as a person types it."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import cli
from regard.commands.shared import models
from regard.gpt import GPT

TWICE = "Alice was beginning to get very tired of sitting by her sister on the bank, and " * 2


@pytest.fixture
def text(tmp_path):
    (tmp_path / "alice.txt").write_text(TWICE)
    return str(tmp_path / "alice.txt")


def watch(*arguments, command="see"):
    found = CliRunner().invoke(cli.app, [command, *arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.stdout


@pytest.mark.parametrize("named", [[], ["--model", "tiny"]], ids=["without a name", "by its name"])
def test_the_model_in_the_package_is_watched(named, text):
    told = watch(text, *named)
    assert "6 layers × 8 heads · 37 tokens · blocks.0–5.attention" in told
    rows = {words[0]: words[1:] for line in told.splitlines() if (words := line.split())}
    assert rows["4.3"][0] == "induction"
    assert rows["0.2"][:2] == ["previous", "token"]
    assert "head 4.3 · induction · blocks.4.attention[3]" in told
    assert f"Another head: regard see {text} --head 0.2" in told


def examples(page):
    """The commands that a page shows with their output: the words after `regard`, and the lines below."""
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    found = re.findall(r"^\$ regard ((?:see|compare) .*)\n((?:.+\n|\n)*?)```", text, flags=re.MULTILINE)
    return [(shlex.split(words), lines) for words, lines in found if lines.strip()]


@pytest.mark.parametrize(("page", "count"), [("docs/see.md", 6)])
def test_the_documentation_shows_what_is_printed(page, count):
    shown = examples(page)
    assert len(shown) == count
    for (command, *words), lines in shown:
        printed = watch(*words, command=command)
        numbers = {tuple(re.split(r"\d+\.\d\d", line)): re.findall(r"\d+\.\d\d", line) for line in printed.splitlines()}
        for line in lines.splitlines():
            if line.startswith("  ") and "…" not in line:
                found = numbers[tuple(re.split(r"\d+\.\d\d", line))]
                expected = [float(number) for number in found]
                assert [float(number) for number in re.findall(r"\d+\.\d\d", line)] == pytest.approx(
                    expected, abs=0.011
                )


def test_one_head_shows_where_each_token_looks(text):
    assert re.search(r"\n +beginning@\d+ .* to@4 0\.9", watch(text, "--layer", "4", "--head", "3"))


def test_one_token_is_shown_in_every_head(text):
    lines = watch(text, "--token", "sister@30").splitlines()
    assert lines[2] == "  sister@30 · position 30 · 48 heads in 6 layers"
    assert any(re.match(r"  4\.3 +induction +on@13 0\.[56]", line) for line in lines)
    layer = watch(text, "--token", "@30", "--layer", "4").splitlines()
    assert layer[2] == "  sister@30 · position 30 · 8 heads in 1 layer"
    assert sum(bool(re.match(r"  4\.\d ", line)) for line in layer) == 8


def test_a_directory_of_ours_is_watched_where_transformers_is_missing(text, tmp_path, monkeypatch):
    GPT.from_pretrained("tiny").save_pretrained(tmp_path / "mine")
    real = models.find_spec
    monkeypatch.setattr(models, "find_spec", lambda name: None if name == "transformers" else real(name))
    monkeypatch.setattr(models, "_reader_with_transformers", None)  # must not be called
    assert "6 layers × 8 heads · 5 tokens" in watch(text, "--model", str(tmp_path / "mine"), "--max-tokens", "5")


def test_a_text_that_is_too_long_says_how_much_of_it_to_read(tmp_path):
    (tmp_path / "long.txt").write_text(TWICE * 30)
    with pytest.raises(
        ValueError, match=r"the text has 1\d+ tokens and the model reads at most 512; add --max-tokens 512"
    ):
        watch(str(tmp_path / "long.txt"))
    told = watch(str(tmp_path / "long.txt"), "--max-tokens", "512")
    assert "512 tokens" in told
    for command in ("see", "page"):  # what to run next runs as well
        assert f"regard {command} {tmp_path / 'long.txt'} --max-tokens 512 -" in told


def test_a_single_word_is_a_text():
    assert "6 layers × 8 heads · 3 tokens" in watch("hello")


def test_a_sentence_may_stand_for_a_file_and_a_label_for_layer_and_head():
    told = watch("the cat sat, the cat sat", "--head", "4.3")
    assert "head 4.3 · " in told
    assert "All heads: regard see 'the cat sat, the cat sat'" in told
    assert watch("--head", "4.3") == watch("--layer", "4", "--head", "3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], r"there is no file nowhere\.txt; give a file, a sentence in quotes, or -"),
        (["--head", "three"], r"--head three must be a number, such as 3; or 4\.3, head 3 of layer 4"),
        (["--head", "4.3", "--layer", "2"], r"--head 4\.3 is of layer 4, but --layer is 2; leave one of them out"),
        (
            ["--head", "4.3", "--token", "the"],
            r"--token the is shown in every head, but --head is 4\.3; leave one of them",
        ),
        (["--token", "the"], r"'the' occurs 2 times; choose one: the@14 or the@33"),
        (["--head", "3"], "--head 3 needs a layer to be in; add --layer 0"),
    ],
)
def test_what_cannot_be_watched_is_told(arguments, message):
    with pytest.raises(ValueError, match=message):
        watch(*arguments)


def test_broad_heads_come_before_those_that_do_nothing_clearly():
    rows = [line.split()[1] for line in watch("--all").splitlines() if re.match(r"  \d\.\d ", line)]
    assert len(rows) == 48
    assert rows[rows.index("mixed") :] == ["mixed"] * rows.count("mixed")
    assert rows[rows.index("broad") : rows.index("mixed")] == ["broad"] * rows.count("broad")


def test_a_step_of_a_head_is_a_matrix_with_words():
    told = watch("The cat sat on the mat", "--step", "scores", "--head", "4.3")
    assert "scores of head 4.3: queries @ keys.mT" in told
    assert re.search(r"\n +The +cat +sat +on +the +mat\n  The +−?\d+\.\d\d", told)
    assert "Another step: regard see 'The cat sat on the mat' --head 4.3 --step mask" in told
    with pytest.raises(ValueError, match=r"--step softmax is not a step of this layer; it has x, queries, keys"):
        watch("The cat", "--step", "softmax")
