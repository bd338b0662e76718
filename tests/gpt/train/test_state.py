"""Checkpoints, the log and the lock."""

import hashlib
import json
import re

import pytest
import torch

from regard.gpt.train import state
from regard.support.files import write_safetensors

TENSORS = {"model.x": torch.arange(5.0), "optimizer.exp_avg.x": torch.ones(5, dtype=torch.float64)}
EMPTY_LOG = state.LogMark(0, hashlib.sha256().hexdigest())
SETTINGS = {"steps": 7, "config": {"d_model": 8}}


def saved(out, *steps, keep=2):
    for step in steps:
        state.save_checkpoint(out, step, TENSORS, SETTINGS, {"val_loss": 1.5, "step": 3}, keep, EMPTY_LOG)


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    assert state.newest(tmp_path) is None
    saved(tmp_path, 5)
    found, tensors, damaged = state.newest(tmp_path)
    assert damaged == {}
    assert (found.step, found.settings, found.best) == (5, SETTINGS, {"val_loss": 1.5, "step": 3})
    assert tensors.keys() == TENSORS.keys()
    assert all(tensors[name].equal(TENSORS[name]) for name in TENSORS)
    assert tensors["optimizer.exp_avg.x"].dtype is torch.float64


def test_only_the_last_ones_stay(tmp_path):
    saved(tmp_path, 5, 10, 100000000, keep=2)
    assert [path.name for path in state.checkpoints(tmp_path)] == [
        "checkpoint-00000010.safetensors",
        "checkpoint-100000000.safetensors",
    ]
    assert state.newest(tmp_path).checkpoint.step == 100000000


def test_a_write_that_fails_loses_nothing(tmp_path, monkeypatch):
    saved(tmp_path, 5)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match=r"checkpoint-00000006.safetensors could not be written: the disk is full"):
        saved(tmp_path, 6, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000005.safetensors"]
    assert state.newest(tmp_path).checkpoint.step == 5


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_a_damaged_checkpoint_gives_way_to_the_newest_intact_one(tmp_path):
    saved(tmp_path, 3, 5, 6, keep=3)
    last, before = (tmp_path / f"checkpoint-0000000{step}.safetensors" for step in (6, 5))
    last.write_bytes(last.read_bytes()[:-3])
    flip(before, -1)
    found = state.newest(tmp_path)
    assert found.checkpoint.step == 3
    assert list(found.damaged) == [last, before]
    assert re.match(r"checkpoint-00000006.safetensors is damaged: the tensors need 60 bytes, but", found.damaged[last])
    assert found.damaged[before].endswith("its content does not have the hash that is stored in it")
    last.rename(last.with_name("checkpoint-00000006.safetensors.damaged"))
    assert state.checkpoints(tmp_path) == [tmp_path / "checkpoint-00000003.safetensors", before]


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_noticed(tmp_path):
    saved(tmp_path, 5)
    path = tmp_path / "checkpoint-00000005.safetensors"
    for at in range(0, path.stat().st_size, 5):
        flip(path, at)
        with pytest.raises(ValueError, match=r"checkpoint-00000005\.safetensors"):
            state.read_checkpoint(path)
        flip(path, at)
    assert state.read_checkpoint(path)[0].step == 5


def test_where_no_checkpoint_is_intact_each_is_named(tmp_path):
    saved(tmp_path, 5, 6)
    for path in state.checkpoints(tmp_path):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(
        ValueError,
        match=r"no checkpoint in .* is intact: checkpoint-00000006.safetensors is damaged: .*; checkpoint-00000005"
        r".safetensors is damaged: .*\. Restore one from a copy, or start over \(resume=False\)",
    ):
        state.newest(tmp_path)


def test_a_renamed_checkpoint_and_a_file_that_is_none_are_damaged(tmp_path):
    saved(tmp_path, 5)
    path = (tmp_path / "checkpoint-00000005.safetensors").rename(tmp_path / "checkpoint-00000007.safetensors")
    with pytest.raises(
        state.Damaged, match=r"checkpoint-00000007\.safetensors is damaged, or renamed: it holds step 5"
    ):
        state.read_checkpoint(path)
    write_safetensors(path, TENSORS)
    with pytest.raises(state.Damaged, match="is no checkpoint of a run: it has no 'form'"):
        state.read_checkpoint(path)


def test_a_checkpoint_of_a_later_version_is_refused_and_not_passed_over(tmp_path):
    saved(tmp_path, 5)
    write_safetensors(tmp_path / "checkpoint-00000006.safetensors", TENSORS, {"form": "3"})
    with pytest.raises(
        ValueError, match=r"written by another version of regard \(format 3, here 2\), or is damaged; res"
    ):
        state.newest(tmp_path)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"step": "x"},
        {"step": "5", "told": "[]", "best": "{}"},
        {"step": "5", "told": "{", "best": "{}"},
        {"step": "5", "told": "{}", "best": "[]"},
        {"step": "5", "told": "{}", "best": '{"step": 3}'},
        {"step": "5", "told": "{}", "best": '{"step": "3", "val_loss": 1.5}'},
    ],
)
def test_metadata_without_hash_that_cannot_be_read_is_damage(tmp_path, metadata):
    path = tmp_path / "checkpoint-00000005.safetensors"
    write_safetensors(path, TENSORS, {"form": "1"} | metadata)
    with pytest.raises(state.Damaged, match=r"checkpoint-00000005.safetensors is damaged"):
        state.read_checkpoint(path)


def test_a_checkpoint_belongs_to_the_log_that_it_was_written_with(tmp_path):
    log = state.Log(tmp_path / "log.jsonl", None)
    for step in (5, 6):
        log.write([{"step": step, "loss": 0.1 * step}], sync=True)
        state.save_checkpoint(tmp_path, step, TENSORS, SETTINGS, {}, 2, log.mark())
    log.write([{"step": 7, "loss": 0.25}], sync=True)
    assert state.newest(tmp_path).checkpoint.step == 6
    right = log.path.read_bytes()
    log.path.write_bytes(right.replace(b"0.6", b"0.2"))
    found = state.newest(tmp_path)
    assert found.checkpoint.step == 5
    assert [*found.damaged.values()] == [
        "log.jsonl has other lines than it had when checkpoint-00000006.safetensors was written"
    ]
    log.path.write_bytes(right.replace(b"0.5", b"0.4")[:30])
    with pytest.raises(
        ValueError,
        match=r"log.jsonl is damaged, or of another run: log.jsonl has 30 bytes, but had .* when checkpoint-00000006.s"
        r".*remove it: the run then resumes from checkpoint-00000006.safetensors, and the log begins after it",
    ):
        state.newest(tmp_path)
    log.path.unlink()
    assert state.newest(tmp_path).checkpoint.step == 6
    for begun in (b"", b'{"ste', b'{"step": 7, "loss": 0.25}\n'):  # what a run leaves that resumed without its log
        log.path.write_bytes(begun)
        checkpoint = state.newest(tmp_path).checkpoint
        assert checkpoint.step == 6
        assert state.log_before(log.path, checkpoint) is None
        assert state.Log(log.path, checkpoint).last == {}


def test_differences_are_named_one_by_one():
    before = {"batch": 4, "config": {"d_model": 8, "window": None}, "sha": "a" * 64}
    now = {"batch": 4, "config": {"d_model": 16, "window": None}, "sha": "b" * 64, "new": 1}
    assert state.differences(before, before) == []
    assert state.differences(before, now) == [
        "config.d_model was 8 and is 16",
        "sha was aaaaaaaaaaaa… and is bbbbbbbbbbbb…",
        "new was nothing and is 1",
    ]


def test_differences_from_a_file_are_printable():
    assert state.differences({"a\x1b[2J": "\x1b]0;x\x07"}, {}) == [r"a\x1b[2J was \x1b]0;x\x07 and is nothing"]


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
        assert state.newest(tmp_path).checkpoint.step == 5


def test_a_log_forgets_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = state.Log(path, None)
    for step in range(1, 8):
        log.write([{"step": step, "loss": 0.1 * step}], sync=step == 7)
        if step == 5:
            mark = log.mark()
    with path.open("a") as file:
        file.write('{"step": 8, "lo')  # killed in the midst of a line
    assert [line["step"] for line in state.read_log(path)] == [1, 2, 3, 4, 5, 6, 7]
    for checkpoint in (state.Checkpoint(tmp_path, 5, {}, {}, mark), state.Checkpoint(tmp_path, 5, {}, {}, None)):
        log = state.Log(path, checkpoint)
        assert log.last == {"step": 5, "loss": 0.5}
        assert log.mark() == mark
        log.write([{"step": 6, "loss": 0.25}], sync=False)
        assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]
        assert state.read_log(path)[-1] == {"step": 6, "loss": 0.25}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"step": 1, "loss": 2.5}\n{"step": 2, "lo\n{"step": 3, "loss": 1.5}\n', 2),
        (b'{"step": 1, "loss": 2.5}\n7\n', 2),
        (b'{"loss": 2.5}\n', 1),
        (b'{"step": true, "loss": 2.5}\n', 1),
        (b'{"step": 1}\n', 1),
        (b'{"step": 1, "loss": 2.5, "time": "late"}\n', 1),
        (b"\xff\xfe\n", 1),
        (b"\0\0\0\0", 1),
        (b"[" * 100_000 + b"\n", 1),
    ],
)
def test_a_damaged_log_is_named_with_its_line(tmp_path, content, line):
    (tmp_path / "log.jsonl").write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"log.jsonl is damaged: line {line} must be a JSON object with step and loss"
    ):
        state.read_log(tmp_path / "log.jsonl")


def test_starting_anew_removes_checkpoints_and_log_alone(tmp_path):
    saved(tmp_path, 5)
    (tmp_path / "log.jsonl").write_text("")
    (tmp_path / "hashes.json").write_text("")
    (tmp_path / "tokens.bin").write_text("")
    state.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.bin"]
