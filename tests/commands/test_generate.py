"""`regard generate` as a person types it."""

import io
import os
import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.commands.generate import generate, without_controls
from regard.gpt import GPT, GPTConfig
from regard.gpt.checkpoint import model_directory
from regard.gpt.generate.generate import GenerationStream as Stream
from regard.gpt.tokenizer.tokenizer import Tokenizer

cli = CliRunner()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    torch.manual_seed(3)
    tokenizer = Tokenizer.train(["the cat sat on the mat, the cat sat on the hat"] * 3, vocab_size=277)
    size = tokenizer.vocab_size
    model = GPT(GPTConfig(vocab_size=size, context_length=37, num_layers=1, d_model=16, num_heads=2))
    model.tokenizer = tokenizer
    path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    return str(path)


def written(directory, prompt="the cat", n=11, **told):
    return prompt + GPT.from_pretrained(directory).generate(prompt, n, **told)


def test_the_text_is_on_stdout_and_how_it_went_on_stderr(directory):
    words = ["generate", "the cat", "--model", directory, "--max-new-tokens", "11", "--seed", "7", "--device", "cpu"]
    result = cli.invoke(app, words)
    assert result.exit_code == 0
    assert result.stdout == without_controls(written(directory, seed=7, temperature=0.8, top_k=50)) + "\n"
    assert re.fullmatch(r"  11 tokens · \d+ tokens/s · seed 7 · ended by --max-new-tokens\n", result.stderr)


def test_a_seed_that_was_not_given_is_told_and_writes_the_same_again(directory, capsys):
    generate("the", model=directory, max_new_tokens=5, device="cpu")
    first = capsys.readouterr()
    seed = int(re.search(r"seed (\d+)", first.err)[1])
    generate("the", model=directory, max_new_tokens=5, device="cpu", seed=seed)
    assert capsys.readouterr().out == first.out


def test_several_samples_are_the_texts_of_the_seeds_that_follow(directory, capsys):
    generate("the", model=directory, max_new_tokens=5, device="cpu", seed=7, samples=3, min_p=0.01)
    both = capsys.readouterr()
    texts = [written(directory, "the", 5, seed=n, temperature=0.8, top_k=50, min_p=0.01) for n in (7, 8, 9)]
    assert both.out == "\n".join(without_controls(text) + "\n" for text in texts)
    assert re.findall(r"seed (\d+)", both.err) == ["7", "8", "9"]


def test_without_chance_there_is_no_seed_to_tell(directory, capsys):
    generate("the", model=directory, max_new_tokens=5, device="cpu", temperature=0.0)
    assert "seed" not in capsys.readouterr().err


def test_why_it_ended_is_told(directory, capsys):
    whole = written(directory, "the", 30, seed=5, temperature=0.8, top_k=50)
    stream = generate("the", model=directory, max_new_tokens=30, seed=5, stop=[whole[9:11]], device="cpu")
    assert stream.reason == "stop"
    assert "ended by --stop" in capsys.readouterr().err
    generate("the", model=directory, max_new_tokens=300, seed=5, device="cpu")
    assert "ended by a full context of 37 tokens" in capsys.readouterr().err


def test_in_a_terminal_the_prompt_is_dim_and_nothing_steers_the_terminal(directory, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    generate("the\x1b[2J", model=directory, max_new_tokens=20, seed=1, device="cpu", temperature=1.5, top_k=0)
    assert shown.getvalue().startswith("\x1b[2mthe�[2J\x1b[0m")
    rest = shown.getvalue().removeprefix("\x1b[2mthe�[2J\x1b[0m")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rest)
    shown.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    generate("the", model=directory, max_new_tokens=2, seed=1, device="cpu")
    assert "\x1b" not in shown.getvalue()


def test_whoever_reads_may_stop_reading(directory):
    words = [sys.executable, "-c", "from regard.cli import main; main()", "generate", "the cat", "--model", directory]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_missing_is_told(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(model_directory, "PACKAGED", tmp_path / "tiny")
    with pytest.raises(ValueError, match=r"the model in the package, .*tiny, is missing; install regard again, or"):
        generate("the")
    with pytest.raises(ValueError, match=r"^--device nowhere is none that torch knows; try cpu or cuda"):
        generate("the", model=directory, device="nowhere")
    model = GPT.from_pretrained(directory)
    model.tokenizer = None
    model.save_pretrained(tmp_path / "mute")
    with pytest.raises(ValueError, match=r"mute has no tokenizer\.json, so no text can be read"):
        generate("the", model=str(tmp_path / "mute"), device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": -1}, "^--top-k -1 must be at least 0; 0 samples from all tokens$"),
        ({"top_p": 1.5}, r"^--top-p 1\.5 must be above 0 and at most 1; 0\.9 is usual, 1 keeps all tokens$"),
        ({"temperature": -1.0}, r"^--temperature -1\.0 must be a number of at least 0"),
        ({"max_new_tokens": -3}, "^--max-new-tokens -3 must be"),
        ({"seed": -1}, "^--seed -1 must be a whole number of at least 0"),
        ({"temperature": 0.0, "seed": 7}, "^--seed 7 has no effect with --temperature 0, which takes the most likely"),
        ({"temperature": 0.0, "top_k": 5}, "^--top-k 5 has no effect with --temperature 0"),
        ({"min_p": 1.5}, r"^--min-p 1\.5 must be from 0 to 1; 0\.05 is usual, 0 keeps all tokens$"),
        ({"samples": 0}, "^--samples 0 must be at least 1$"),
        ({"temperature": 0.0, "samples": 2}, "^--samples 2 has no effect with --temperature 0"),
        ({"temperature": 0.0, "min_p": 0.1}, r"^--min-p 0\.1 has no effect with --temperature 0"),
        ({"temperature": 0.0, "top_p": 0.9}, r"^--top-p 0\.9 has no effect with --temperature 0"),
    ],
    ids=str,
)
def test_errors_name_the_flag_that_was_typed(options, message, directory):
    with pytest.raises(ValueError, match=message):
        generate("the", model=directory, device="cpu", **options)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_told(directory, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(ValueError, match="the text could not be written: No space left on device; write it else"):
            generate("the cat", model=directory, device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_told(directory):
    with pytest.raises(ValueError, match="there is no CUDA device here; try --device cpu"):
        generate("the", model=directory, device="cuda")


def test_control_characters_are_replaced_and_line_breaks_stay():
    assert without_controls("a\x1b[2J\tb\x00\n\x9bc\x7f") == "a�[2J\tb�\n�c�"


def test_ctrl_c_keeps_what_was_written_and_says_so(directory, monkeypatch, capsys):
    def stop(self):
        if self.tokens == 3:
            raise KeyboardInterrupt
        return following(self)

    following = Stream.__next__
    monkeypatch.setattr(Stream, "__next__", stop)
    with pytest.raises(SystemExit, match="130"):
        generate("the cat", model=directory, max_new_tokens=11, temperature=0.0, device="cpu")
    told = capsys.readouterr()
    assert written(directory, n=3, temperature=0) == told.out.removesuffix("\n")
    assert re.search(r"3 tokens · \d+ tokens/s · interrupted", told.err)
