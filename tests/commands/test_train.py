"""`regard train`, as a person types it."""

import json
import re
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli import app, main
from regard.gpt import GPT
from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train.parallel import Parallel
from regard.gpt.train.processes import Processes
from regard.gpt.train.state import read_log

TEXT = "".join(f"The {a} cat sat on the {b} mat.\n" for a in ("old", "red", "shy") for b in ("new", "wet", "big")) * 20
SMALL = ["--context-length", "16", "--batch", "2", "--steps", "4", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(
        "regard.show.terminal.training.plot_loss", lambda lines, path: True
    )  # slow, and tested on its own
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


def train(*arguments):
    found = CliRunner().invoke(app, ["train", *arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_text_becomes_a_model_and_the_next_command_is_named(text, tmp_path):
    out = str(tmp_path / "first")
    found = train("--data", text, "--out", out, *SMALL)
    assert found.exit_code == 0
    told = found.stdout
    assert "6 layers × 8 heads, width 256, context 16" in told
    assert "validation loss  " in told
    assert f'Next: regard generate --model {out}/model "Once upon a time"' in told
    model = GPT.from_pretrained(tmp_path / "first" / "model")
    assert model.tokenizer.vocab_size == model.config.vocab_size
    assert model.tokenizer.decode(model.tokenizer.encode("The cat")) == "The cat"
    assert len(read_log(tmp_path / "first" / "log.jsonl")) == 4
    assert "  4 steps in " in told
    again = train("--data", text, "--out", out, *SMALL)
    assert "from checkpoint-00000004.safetensors" in again.stdout
    assert re.search(r"  0 steps in .*: all were done already", again.stdout)
    assert "written" not in again.stderr


def test_many_files_a_given_tokenizer_and_a_given_model(text, tmp_path):
    Tokenizer.train([TEXT], vocab_size=270).save(tmp_path / "tokenizer.json")
    words = ["--tokenizer", str(tmp_path / "tokenizer.json")]
    first = train("--data", text, text, text, "--out", str(tmp_path / "a"), *words, *SMALL)
    assert first.exit_code == 0
    assert "vocabulary of 270" in first.stdout
    second = train("--data", text, "--model", str(tmp_path / "a" / "model"), "--out", str(tmp_path / "b"), *SMALL)
    assert second.exit_code == 0
    before, after = (read_log(tmp_path / name / "log.jsonl") for name in "ab")
    assert after[0]["loss"] < before[0]["loss"]  # it knows something already


def test_positions_start_as_waves_where_that_is_asked_for(text, tmp_path):
    out = tmp_path / "waves"
    train("--data", text, "--out", str(out), "--sinusoidal", "--learning-rate", "1e-9", *SMALL)
    model = GPT.from_pretrained(out / "model")
    found = model.position_embedding.weight
    torch.testing.assert_close(found, found[0, 1] * regard.sinusoidal(16, 256), rtol=0, atol=1e-6)


def test_a_damaged_checkpoint_and_more_steps_are_said_and_the_header_is_true(text, tmp_path):
    out = ["--data", text, "--out", str(tmp_path / "a"), *SMALL, "--checkpoint-every", "3", "--steps"]
    train(*out, "4")
    last = tmp_path / "a" / "checkpoint-00000004.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    found = train(*out, "4")
    assert "checkpoint-00000004.safetensors is damaged: the tensors need " in found.stderr
    assert ". Resuming from checkpoint-00000003.safetensors; the other is now checkpoint-00000004" in found.stderr
    assert "steps       4, from checkpoint-00000003.safetensors" in found.stdout
    found = train(*out, "7")
    assert "  lengthened from 4 to 7 steps: step 5 has a learning rate of 0.000325" in found.stderr
    assert "steps       7, from checkpoint-00000004.safetensors" in found.stdout
    assert re.search(r"  3 steps in .*, 7 in all", found.stdout)


def test_another_recipe_is_refused_and_fresh_starts_anew(text, tmp_path):
    out = ["--data", text, "--out", str(tmp_path / "a"), *SMALL]
    train(*out)
    with pytest.raises(
        ValueError, match=r"is of another run: seed was 0 and is 7.*--model .*a.model, and another --out$"
    ):
        train(*out, "--seed", "7")
    assert train(*out, "--seed", "7", "--fresh").exit_code == 0
    assert len(read_log(tmp_path / "a" / "log.jsonl")) == 4
    hashed = json.loads((tmp_path / "a" / "hashes.json").read_text())["files"]
    assert {"tokenizer.json", "model/model.safetensors", "best/model.safetensors"} < hashed.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "gone.txt"], "data file gone.txt is not there; check the path"),
        (["--data", "empty.txt"], "data file empty.txt is empty; give it some text"),
        (
            ["--data", "short.txt", "--preset", "tiny"],
            "has 3 tokens, but --context-length 512 needs 1,026, 513 for training and 513",
        ),
        (["--data", "image.png"], "data file image.png is a PNG image, not text; give text files in UTF-8: .txt, .gz"),
        (["--data", "text.txt", "--model", "tiny", "--preset", "tiny"], "--preset tiny is for a new model; one from a"),
        (
            ["--data", "text.txt", "--evaluate-every", "3", "--val-fraction", "0"],
            "--evaluate-every 3 needs validation data, but --val-fraction is 0; leave one of them out",
        ),
        (
            ["--data", "text.txt", "--warmup", "9", "--steps", "7"],
            "--warmup 9 must be at least 0 and at most --steps 7",
        ),
        (["--data", "text.txt", "--preset", "smal"], "no preset is called 'smal'; there are micro, tiny, gpt2-small"),
        (["--data", "text.txt", "--dtype", "fp16"], "--dtype fp16 must be 'fp32' or 'bf16'"),
        (["--data", "text.txt", "--model", "./nowhere"], "there is no directory ./nowhere"),
        (["--data", "text.txt", "--model", "tiny", "--dropout", "0.1"], "--dropout is for a new model; one from a"),
        (["--data", "text.txt", "--model", "tiny", "--sinusoidal"], "--sinusoidal is for a new model; one from a"),
        (["--data", "text.txt", "--batch", "0"], "--batch 0 must be a whole number of at least 1"),
        (["--data", "text.txt", "--context-length", "0"], "--context-length 0 must be a whole number of at least 1"),
        (["--data", "text.txt", "--weight-decay", "-1"], "--weight-decay -1.0 must be at least 0; 0.1 is usual"),
        (["--data", "text.txt", "--evaluate-every", "-3"], "--evaluate-every -3 must be at least 0; 0 is never"),
        (["--data", "text.txt", "--evaluate-windows", "-3"], "--evaluate-windows -3 must be at least 0; 0 is none"),
        (["--data", "text.txt", "--keep", "0"], "--keep 0 must be at least 1: a run resumes from its last checkpoint"),
        (["--data", "text.txt", "--seed", "-1"], "--seed -1 must be a whole number of at least 0"),
        (["--data", "text.txt", "--device", "nonsense"], "--device nonsense is none that torch knows; try cpu or cuda"),
        (["--data", "text.txt", "--device", "meta"], "nothing can be computed on --device meta here; try cpu"),
        (["--data", "text.txt", "--steps", "0"], "--steps 0 must be a whole number of at least 1"),
        (["--data", "text.txt", "--parallel", "fsdp=2"], "was started without torchrun; run torchrun"),
    ],
)
def test_what_cannot_work_is_one_line(arguments, message, text, tmp_path, monkeypatch, capsys, without_shape_checks):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    monkeypatch.setattr(sys, "argv", ["regard", "train", "--out", "out", "--device", "cpu", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    printed, told = capsys.readouterr()
    assert message in told
    assert printed == ""  # not even the header
    if "short.txt" not in arguments:  # how many tokens a text has is not known before it is read
        assert told.startswith("regard: ")
        assert len(told.splitlines()) == 1
        assert not (tmp_path / "out").exists()


@pytest.fixture
def last_line_on_a_full_disk(text, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    def run():
        monkeypatch.setattr("safetensors.torch.save_file", full)
        monkeypatch.setattr(sys, "argv", ["regard", "train", "--data", text, "--out", str(tmp_path / "a"), *SMALL])
        with pytest.raises(SystemExit, match="2"):
            main()
        return capsys.readouterr().err.splitlines()[-1]

    return run


def test_a_full_disk_is_one_line_too(last_line_on_a_full_disk):
    told = last_line_on_a_full_disk()
    assert "could not be written: the disk is full; free some space" in told
    assert told.endswith("What was there before is untouched. Then give the same command again")


def test_a_disk_that_fills_up_later_names_the_checkpoint_to_go_on_from(text, tmp_path, last_line_on_a_full_disk):
    train("--data", text, "--out", str(tmp_path / "a"), *SMALL)
    told = last_line_on_a_full_disk()
    assert "The same command then resumes from checkpoint-00000004.safetensors" in told


def test_a_directory_that_cannot_be_written_is_named(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", "train", "--data", text, "--out", text, *SMALL])
    with pytest.raises(SystemExit, match="2"):
        main()
    told = capsys.readouterr().err
    reason = "File exists; choose another directory, where you may write"
    assert told == f"regard: --out {text} cannot be written: {reason}\n"


def test_a_plan_that_does_not_fit_is_said_before_the_data_is_read(text, tmp_path, monkeypatch):
    @contextmanager
    def joined(*_):
        world = Processes("cpu")
        world.check = lambda config, batch: Parallel(tp=3).check(config)
        yield world

    monkeypatch.setattr("regard.gpt.train.fit.join_processes", joined)
    with pytest.raises(ValueError, match=r"tp \(3\) must divide num_heads \(8\) and num_kv_heads \(8\)"):
        train("--data", text, "--out", str(tmp_path / "a"), *SMALL)
    assert not (tmp_path / "a").exists()


def test_the_flags_are_known_without_torch():
    """Packages stubbed, so that only what the command itself imports counts: --help must be fast."""
    code = """
    import sys, types, pathlib
    for name in ("regard", "regard.gpt", "regard.gpt.train", "regard.commands"):
        module = types.ModuleType(name)
        module.__path__ = [str(pathlib.Path(sys.argv[1], *name.split(".")[1:]))]
        sys.modules[name] = module
    import inspect
    from regard.commands.train import train
    print("torch" in sys.modules, "learning_rate" in inspect.signature(train).parameters)
    """
    source = str(Path(regard.__file__).parent)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), source], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False", "True"]
