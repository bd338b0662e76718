"""Every file of a run's directory, damaged in every way: never other losses in silence."""

import random
import re
from pathlib import Path

import pytest
import torch

from gpt.train.damaging import STOP, copy_of, damage, files, outcome, stop, train
from regard.gpt import GPTConfig

PAGE = Path(__file__).parents[3] / "docs" / "train.md"
WAYS = ["truncated", "zeroed", "one bit flipped", "another run's", "of other data", "missing", "a directory"]
TEXT = "".join(f"The {a} cat sat on the {b} mat.\n" for a in ("old", "red", "shy") for b in ("new", "wet", "big")) * 9
LAST = f"checkpoint-{STOP:08d}.safetensors"
ROWS = {
    LAST: "the last checkpoint",
    "checkpoint-00000006.safetensors": "the checkpoint before it",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directories: a stopped run, the same one unbroken, one with other initial weights, and one on another text."""
    directory = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        small = GPTConfig(vocab_size=263, context_length=7, num_layers=1, d_model=8, num_heads=2)
        patch.setattr(GPTConfig, "preset", lambda name: small)
        patch.setattr("regard.show.terminal.training.plot_loss", lambda lines, path: path.write_bytes(b"a plot"))
        patch.setattr("os.fsync", lambda file: None)  # nothing here loses power, and a hundred runs would wait for it
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        (directory / "text.txt").write_text(TEXT)
        (directory / "other.txt").write_text(TEXT.replace("cat", "dog"))
        train(directory / "text.txt", directory / "unbroken")
        train(directory / "text.txt", directory / "stopped", on_step=stop)
        train(directory / "text.txt", directory / "another run's", on_step=stop, sinusoidal=True)
        train(directory / "other.txt", directory / "of other data", on_step=stop)
        yield directory
        torch.set_num_threads(threads)


def resumed(runs, name, how, chance, captured):
    """What resuming does where one file is damaged."""
    with copy_of(runs / "stopped", runs / "damaged") as out:
        damage(out / name, how, chance, {other: runs / other / name for other in ("another run's", "of other data")})
        return outcome(runs / "text.txt", out, name, runs / "unbroken", captured)


def cell(runs, name, how, captured):
    return resumed(runs, name, how, random.Random(f"{name} {how}"), captured)


def page_cells():
    """The table of the page: row and column → cell."""
    table = PAGE.read_text().partition("<!-- damage -->\n")[2].partition("<!-- /damage -->")[0]
    header, _, *rows = ([text.strip() for text in line.split("|")[1:-1]] for line in table.strip().splitlines())
    return {(row[0], way): text for row in rows for way, text in zip(header[1:], row[1:], strict=True)}


def test_the_table_of_damage_names_every_file_and_way(runs):
    names = files(runs / "stopped")
    assert {"hashes.json", "log.jsonl", "tokens.bin", "best/model.safetensors", *ROWS} < set(names)
    assert list(page_cells()) == [(ROWS.get(name, f"`{name}`"), way) for name in names for way in WAYS]


def test_one_cell_of_each_row_and_every_cell_of_the_last_checkpoint_are_what_happens(runs, capsys):
    expected = page_cells()
    chosen = [(name, WAYS[number % len(WAYS)]) for number, name in enumerate(files(runs / "stopped"))]
    for name, way in [*chosen, *((LAST, way) for way in WAYS)]:
        assert cell(runs, name, way, capsys) == expected[ROWS.get(name, f"`{name}`"), way], (name, way)


@pytest.mark.slow
def test_the_table_of_damage_is_what_happens(runs, capsys):
    rows = [["file", *WAYS], ["---"] * (len(WAYS) + 1)]
    for name in files(runs / "stopped"):
        rows.append([ROWS.get(name, f"`{name}`"), *(cell(runs, name, way, capsys) for way in WAYS)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    page = re.search(r"<!-- damage -->\n(.*?)\n<!-- /damage -->", PAGE.read_text(), flags=re.DOTALL)
    assert page is not None, f"{PAGE.name} has no table of damage"
    assert page[1] == table, f"put this table into {PAGE.name}:\n{table}"


def test_an_untouched_run_resumes_and_says_nothing(runs, capsys):
    assert resumed(runs, "log.jsonl", "nothing", random.Random(1), capsys) == "resumes"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_wherever_the_bit_is_no_loss_changes_in_silence(runs, seed, capsys):
    for name in files(runs / "stopped"):
        resumed(runs, name, "one bit flipped", random.Random(f"{name} {seed}"), capsys)


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(runs):
    for name in (LAST, "log.jsonl", "tokens.json", "best/config.json"):
        with copy_of(runs / "stopped", runs / "damaged") as out:
            damage(out / name, "a pipe", random.Random(1), {})
            with pytest.raises(ValueError, match=r"must be a file of this run, but is a pipe or device; move it away"):
                train(runs / "text.txt", out)
