"""What all benchmarks share."""

import argparse

import pytest
import torch

from regard.bench.settings import (
    Setting,
    WrongError,
    choose_models,
    find_device,
    find_dtype,
    limits,
    run_command,
    start,
)
from regard.gpt import GPTConfig


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_an_output_directory_that_cannot_be_written_to_is_refused_before_the_run(tmp_path, capsys):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SystemExit, match="2"):
        run_command("layer", ["--out", "taken/here"], lambda options: lambda **more: pytest.fail("it ran"))
    message = (
        "regard: --out taken/here cannot be written to: Not a directory; choose another directory; see regard bench"
    )
    assert capsys.readouterr().err.startswith(message)
    run_command("layer", ["--out", "new/here"], lambda options: lambda **more: None)
    assert list((tmp_path / "new" / "here").iterdir()) == []


def test_a_setting_is_plain_values_in_a_file():
    setting = Setting("cpu", torch.bfloat16, rounds=3, seconds=0.5, seed=7)
    assert setting.as_json() == {"device": "cpu", "dtype": "bfloat16", "rounds": 3, "seconds": 0.5, "seed": 7}
    assert Setting("cpu", "bf16").label == "bf16 · cpu"
    assert (Setting("cuda:1", "bf16").cuda, setting.cuda) == (True, False)


def test_the_device_is_a_gpu_only_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device(None) == ("cpu", False)
    with pytest.raises(ValueError, match="there is no CUDA device here; try --device cpu"):
        find_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device(None) == ("cuda", True)
    assert find_device("cpu") == ("cpu", False)


def test_the_dtype_depends_on_the_device_unless_it_is_named():
    assert (find_dtype(None, cuda=False), find_dtype(None, cuda=True)) == (torch.float32, torch.bfloat16)
    assert find_dtype("float16", cuda=True) is torch.float16


def test_quick_lowers_the_limits_and_never_raises_them():
    options = argparse.Namespace(rounds=20, seconds=0.05, quick=False)
    assert limits(options, 3, 0.2) == {"rounds": 20, "seconds": 0.05}
    options.quick = True
    assert limits(options, 3, 0.2) == {"rounds": 3, "seconds": 0.05}


def test_a_run_starts_with_the_machine():
    shown = []
    results = start("layer", "python -m x", "cpu", {"rounds": 3}, shown.append)
    assert list(results) == ["benchmark", "machine", "settings"]
    assert (results["benchmark"], results["settings"]) == ("layer", {"rounds": 3})
    assert results["machine"]["command"] == "python -m x"
    assert "cores" in shown[0]


def test_a_command_line_becomes_a_run_with_its_command():
    ran = []
    assert (
        run_command("watch", ["--heads", "3x8", "--out", "a b"], lambda options: lambda **more: ran.append(more)) == 0
    )
    assert ran == [{"command": "python -m regard.bench.watch --heads 3x8 --out 'a b'"}]


def test_threads_are_set_before_the_run():
    before, during = torch.get_num_threads(), []
    try:
        run_command("watch", ["--threads", "3"], lambda options: lambda command: during.append(torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert during == [3]


def test_a_wrong_option_is_an_error_of_the_command_line(capsys):
    def prepare(options):
        raise ValueError("--rounds 0 must be above 0")

    with pytest.raises(SystemExit, match="2"):
        run_command("layer", [], prepare)
    assert "regard: --rounds 0 must be above 0; see regard bench layer --help" in capsys.readouterr().err


def test_a_wrong_result_ends_the_run_with_status_1(capsys):
    def run(command):
        raise WrongError("toy: nothing was timed")

    with pytest.raises(SystemExit, match="1"):
        run_command("layer", [], lambda options: run)
    assert capsys.readouterr().err == "toy: nothing was timed\n"


def test_quick_has_a_model_of_its_own():
    small = GPTConfig.preset("tiny", num_layers=1)
    options = argparse.Namespace(quick=True, model=None)
    assert choose_models(options, small) == {"quick": small}
    options.quick = False
    assert choose_models(options, small) == {"gpt2-small": GPTConfig.preset("gpt2-small")}
    options.model = ["gpt2-xl", "tiny"]
    assert list(choose_models(options, small)) == ["gpt2-xl", "tiny"]
    options.quick = True
    with pytest.raises(ValueError, match="--quick has a model of its own; leave it out, or --model gpt2-xl"):
        choose_models(options, small)
