"""Files are replaced completely or not at all."""

import errno
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from regard.support.files import NotWritten, atomically, check_writable, write_safetensors

ROOT = os.geteuid() == 0 if hasattr(os, "geteuid") else False


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "notes"
    path.write_text("old")
    with atomically(path) as temporary:
        assert temporary.parent == path.parent
        temporary.write_text("new")
        assert path.read_text() == "old"
        reader = path.open()
    assert path.read_text() == "new"
    with reader:
        assert reader.read() == "old"  # who was reading reads on: it is another file
    assert os.listdir(tmp_path) == ["notes"]


def test_a_file_is_on_the_disk_before_it_takes_its_place_and_so_is_its_name_after(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync") or fsync(handle))
    monkeypatch.setattr(Path, "replace", lambda old, new: done.append("rename") or replace(old, new))
    with atomically(tmp_path / "notes") as temporary:
        temporary.write_text("new")
    assert done == ["fsync", "rename", *["fsync"] * (os.name == "posix")]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_new_file_has_the_usual_permissions(tmp_path):
    write_safetensors(tmp_path / "a", {"x": torch.zeros(2)})
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def fail_halfway(path, error):
    with atomically(path) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError("our own"), KeyboardInterrupt(), FileNotFoundError(2, "gone", "other")])
def test_a_failure_inside_leaves_the_old_file_and_says_its_own_words(tmp_path, error):
    path = tmp_path / "notes"
    path.write_text("old")
    with pytest.raises(type(error)) as raised:
        fail_halfway(path, error)
    assert raised.value is error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["notes"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full; free some space and save again"),
        (errno.EDQUOT, "your disk quota is used up; free some space"),
        (errno.EROFS, "the disk is read-only; save elsewhere"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_disk_that_fails_is_named_and_the_old_file_stays(tmp_path, number, message):
    path = tmp_path / "notes"
    path.write_text("old")
    wanted = rf"notes could not be written: {message}.*\. What was there before is untouched\.$"
    with pytest.raises(OSError, match=wanted) as error:
        fail_halfway(path, OSError(number, os.strerror(number)))
    assert error.value.errno == number
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["notes"]


def test_a_disk_that_is_full_at_the_last_moment_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"x": torch.zeros(3)})
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritten, match="the disk is full"):
        write_safetensors(path, {"x": torch.ones(5)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
def test_a_file_that_really_cannot_grow_is_named_and_the_old_one_stays(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"x": torch.zeros(3)})
    before = path.read_bytes()
    code = f"""
    import resource, torch
    from regard.support.files import NotWritten, atomically, check_writable, write_safetensors
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        write_safetensors({str(path)!r}, {{"x": torch.zeros(1_000_000)}})
    except OSError as error:
        print(error)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "could not be written: the file would be larger than is allowed here; raise the limit" in found.stdout
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.skipif(ROOT or os.name != "posix", reason="nothing is forbidden to root")
def test_a_forbidden_directory_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=r"that is not permitted; save where you may write"):
        write_safetensors(tmp_path / "x", {"x": torch.zeros(3)})


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(OSError, match=r"no/x could not be written: its directory is missing; make it first"):
        write_safetensors(tmp_path / "no" / "x", {"x": torch.zeros(3)})


def test_a_directory_in_the_way_is_named(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match=r"x could not be written: a directory has that name; save elsewhere"):
        write_safetensors(tmp_path / "x", {"x": torch.zeros(3)})


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    path, now = tmp_path / "notes", time.time()
    old, young, other = (tmp_path / n for n in (".notes.1234.partial", ".notes.5678.partial", ".other.1.partial"))
    for file, age in ((old, 3600), (young, 5), (other, 3600)):
        file.touch()
        os.utime(file, (now - age, now - age))
    with atomically(path) as temporary:
        temporary.write_text("new")
    assert sorted(os.listdir(tmp_path)) == [young.name, other.name, "notes"]


def test_tensors_that_are_views_are_written_as_they_look(tmp_path):
    x = torch.randn(5, 7)
    write_safetensors(tmp_path / "x", {"turned": x.mT, "part": x[1:3, ::2], "learned": torch.nn.Parameter(x)})
    from safetensors.torch import load_file

    found = load_file(tmp_path / "x")
    torch.testing.assert_close(found, {"turned": x.mT, "part": x[1:3, ::2], "learned": x}, rtol=0, atol=0)


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    check_writable(tmp_path / "g.csv")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"--csv .*no/g\.csv: .*no is no folder; make it first"):
        check_writable(tmp_path / "no" / "g.csv", "--csv")
    with pytest.raises(ValueError, match=r"^--csv .*: a folder has that name; choose another"):
        check_writable(tmp_path, "--csv")

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(ValueError, match=r"g\.csv cannot be written: Read-only file system; choose another place"):
        check_writable(tmp_path / "g.csv")
