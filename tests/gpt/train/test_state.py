"""Checkpoints, the log and the lock."""

import json

import pytest
import torch

from regard.files import write_safetensors
from regard.gpt.train import state

TENSORS = {"model.x": torch.arange(5.0), "optimizer.exp_avg.x": torch.ones(5, dtype=torch.float64)}
SETTINGS = {"steps": 7, "config": {"d_model": 8}}


def saved(out, *steps, keep=2):
    for step in steps:
        state.save(out, step, TENSORS, SETTINGS, {"val_loss": 1.5, "step": 3}, keep)


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    assert state.latest(tmp_path) is None
    saved(tmp_path, 5)
    found = state.latest(tmp_path)
    assert (found.step, found.settings, found.best) == (5, SETTINGS, {"val_loss": 1.5, "step": 3})
    tensors = found.tensors()
    assert tensors.keys() == TENSORS.keys()
    assert all(tensors[name].equal(TENSORS[name]) for name in TENSORS)
    assert tensors["optimizer.exp_avg.x"].dtype is torch.float64


def test_only_the_last_ones_stay(tmp_path):
    saved(tmp_path, 5, 10, 100000000, keep=2)
    assert [path.name for path in state.checkpoints(tmp_path)] == [
        "checkpoint-00000010.safetensors",
        "checkpoint-100000000.safetensors",
    ]
    assert state.latest(tmp_path).step == 100000000


def test_a_write_that_fails_loses_nothing(tmp_path, monkeypatch):
    saved(tmp_path, 5)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match=r"checkpoint-00000006.safetensors could not be written: the disk is full"):
        saved(tmp_path, 6, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000005.safetensors"]
    assert state.latest(tmp_path).step == 5


def test_a_damaged_checkpoint_is_named_with_the_one_before(tmp_path):
    saved(tmp_path, 5, 6)
    path = tmp_path / "checkpoint-00000006.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(
        ValueError,
        match=r"checkpoint-00000006.safetensors: .* Remove checkpoint-00000006.safetensors; without it the run resumes "
        r"from checkpoint-00000005.safetensors",
    ):
        state.latest(tmp_path)


def test_a_file_that_is_no_checkpoint_is_said(tmp_path):
    write_safetensors(tmp_path / "checkpoint-00000006.safetensors", TENSORS)
    with pytest.raises(ValueError, match="is no checkpoint of a run: it has no 'form'"):
        state.latest(tmp_path)


def test_differences_are_named_one_by_one():
    before = {"batch": 4, "config": {"d_model": 8, "window": None}, "sha": "a" * 64}
    now = {"batch": 4, "config": {"d_model": 16, "window": None}, "sha": "b" * 64, "new": 1}
    assert state.differences(before, before) == []
    assert state.differences(before, now) == [
        "config.d_model was 8 and is 16",
        "sha was aaaaaaaaaaaa… and is bbbbbbbbbbbb…",
        "new was nothing and is 1",
    ]


def test_a_directory_belongs_to_one_run_at_a_time(tmp_path):
    with state.locked(tmp_path), pytest.raises(ValueError, match=r"another run is at work in .*; wait for it, stop it"):
        state.locked(tmp_path).__enter__()
    with state.locked(tmp_path):  # free again
        pass


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    saved(tmp_path, 5)
    (tmp_path / ".checkpoint-00000006.safetensors.12ab.partial").write_bytes(b"half")
    with state.locked(tmp_path):
        assert not list(tmp_path.glob("*.partial"))
        assert state.latest(tmp_path).step == 5


def test_a_log_forgets_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = state.Log(path, 0)
    for step in range(1, 8):
        log.write([{"step": step, "loss": 0.1 * step}], sync=step == 7)
    with path.open("a") as file:
        file.write('{"step": 8, "lo')  # killed in the midst of a line
    log = state.Log(path, 5)
    assert log.last == {"step": 5, "loss": 0.5}
    log.write([{"step": 6, "loss": 0.25}], sync=False)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]
    assert state.read_log(path)[-1] == {"step": 6, "loss": 0.25}


def test_starting_anew_removes_checkpoints_and_log_alone(tmp_path):
    saved(tmp_path, 5)
    (tmp_path / "log.jsonl").write_text("")
    (tmp_path / "tokens.bin").write_text("")
    state.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.bin"]
