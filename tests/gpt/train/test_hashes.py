"""Hashes of tensors and files."""

import hashlib
import json
import os

import pytest
import torch

from regard.gpt.train import hashes
from regard.gpt.train.hashes import FileHashes, check_types, hash_file_in_parts, hash_tensors


@pytest.fixture
def out(tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "config.json").write_text("{}")
    (tmp_path / "best" / "weights").write_bytes(b"abc")
    (tmp_path / "best" / ".hidden").write_bytes(b"x")
    (tmp_path / "best.txt").write_text("another file")
    return tmp_path


def test_every_part_of_a_large_file_and_its_place_count(tmp_path, monkeypatch):
    monkeypatch.setattr(hashes, "PART", 7)
    right = bytes(range(23))
    found = set()
    for content in (
        right,
        right[:22],
        right[7:14] + right[:7] + right[14:],
        bytes([1]) + right[1:],
        right[:22] + b"x",
        b"",
    ):
        (tmp_path / "x").write_bytes(content)
        found.add(hash_file_in_parts(tmp_path / "x"))
    assert len(found) == 6
    digests = [hashlib.sha256(right[at : at + 7]).digest() for at in (0, 7, 14, 21)]
    assert hashlib.sha256(b"".join(digests)).hexdigest() in found


def test_every_part_of_a_large_tensor_and_its_place_count(monkeypatch):
    monkeypatch.setattr(hashes, "PART", 7)
    x = torch.arange(11.0)
    assert hash_tensors({"x": x}, {}) == hash_tensors({"x": x.clone()}, {})
    changed = [x + (torch.arange(11) == at) for at in range(11)]
    assert len({hash_tensors({"x": tensor}, {}) for tensor in [x, x.roll(7), *changed]}) == 13


def test_names_dtypes_shapes_bytes_and_metadata_all_count():
    x, y = torch.arange(6.0), torch.ones(())
    right = hash_tensors({"x": x, "y": y}, {"step": "3"})
    assert right == hash_tensors({"y": y.clone(), "x": x.clone()}, {"step": "3"})
    others = [
        ({"z": x, "y": y}, {"step": "3"}),
        ({"x": x.view(torch.int32), "y": y}, {"step": "3"}),
        ({"x": x.view(2, 3), "y": y}, {"step": "3"}),
        ({"x": x.flip(0), "y": y}, {"step": "3"}),
        ({"x": x, "y": -y}, {"step": "3"}),
        ({"x": x}, {"step": "3"}),
        ({"x": x, "y": y}, {"step": "5"}),
        ({"x": x, "y": y}, {}),
    ]
    assert len({right, *(hash_tensors(*other) for other in others)}) == len(others) + 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_tensors_of_every_dtype_and_layout_have_a_hash(dtype):
    x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    assert hash_tensors({"x": x.mT}, {}) == hash_tensors({"x": x.mT.contiguous()}, {})
    assert hash_tensors({"x": x.mT}, {}) != hash_tensors({"x": x.reshape(3, 2)}, {})
    assert hash_tensors({"x": x[:0]}, {}) != hash_tensors({"x": x[:, :0]}, {})


def test_files_are_recorded_and_changes_are_found(out):
    kept = FileHashes.read(out)
    assert kept == FileHashes(out)
    kept.best = {"val_loss": 1.5, "step": 7}
    kept.record("best")
    kept.record("best.txt")
    again = FileHashes.read(out)
    assert again == kept
    assert again.recorded("best") == ["best/config.json", "best/weights"]
    assert again.changed("best") == []
    (out / "best" / "weights").write_bytes(b"abd")
    (out / "best" / "config.json").unlink()
    assert again.changed("best") == ["best/config.json", "best/weights"]
    assert again.changed("best.txt") == []
    again.forget("best")
    assert FileHashes.read(out).files == {"best.txt": hash_file_in_parts(out / "best.txt")}


def test_hashes_that_are_about_to_be_wrong_are_removed_from_the_disk_first(out):
    kept = FileHashes(out)
    kept.forget("best")
    assert (out / "hashes.json").exists()  # a run that is killed now is not taken for one without hashes
    kept.record("best")
    assert json.loads((out / "hashes.json").read_text())["files"].keys() == {"best/config.json", "best/weights"}


def test_no_byte_of_the_hashes_can_change_unnoticed(out):
    FileHashes(out).record("best")
    path, right = out / "hashes.json", FileHashes.read(out)
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        if content[at : at + 1].isspace():  # another white space, perhaps
            continue
        with pytest.raises(ValueError, match=r"hashes.json is damaged: its content does not have the hash"):
            FileHashes.read(out)
    path.write_bytes(content)
    assert FileHashes.read(out) == right


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"\xff", b"{}", b'{"sha256": "x"}', b"[" * 100_000, bytes(99)])
def test_what_is_no_file_of_hashes_is_damaged(out, content):
    (out / "hashes.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"hashes.json is damaged: .*; restore it from a copy, or remove it: the run then"
    ):
        FileHashes.read(out)


def test_only_files_may_be_in_the_place_of_files(tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    check_types(tmp_path, ["file", "missing"])
    for name, kind in (("directory", "directory"), ("link", "dead link"), ("pipe", "pipe or device")):
        with pytest.raises(
            ValueError, match=rf"{name} must be a file of this run, but is a {kind}; move it away, then"
        ):
            check_types(tmp_path, ["file", name])
