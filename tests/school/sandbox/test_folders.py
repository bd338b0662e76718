"""The temporary folder: measured without being trusted, removed whatever is in it."""

import os
import signal
import subprocess
import sys

import pytest

from regard.school.sandbox.folders import measure_folder, remove_folder, remove_left_by, temporary_folder


def test_a_temporary_folder_is_for_its_owner_only_and_gone_afterwards():
    with temporary_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "file").write_text("x")
    assert not folder.exists()


def test_a_temporary_folder_is_removed_after_an_error_too():
    with pytest.raises(KeyError, match="seven"), temporary_folder() as folder:
        raise KeyError("seven")
    assert not folder.exists()


def test_folders_deeper_than_paths_and_recursion_are_removed():
    with temporary_folder() as folder:
        here = os.open(folder, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("a", dir_fd=here)
            inner = os.open("a", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)
    assert not folder.exists()


def test_folders_without_permissions_are_removed(tmp_path):
    folder = tmp_path / "folder"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    for path in (folder / "a" / "b", folder / "a", folder):
        path.chmod(0)
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_a_link_leads_to_stays(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "folder").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    (folder / "nowhere").symlink_to(tmp_path / "nowhere")
    size, entries = measure_folder(folder, 100)
    assert (size < 4096 * 4, entries) == (True, 3)
    remove_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "file").read_text() == "x"


def test_bytes_and_entries_are_measured_in_folders_of_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(bytes(200_000))
    size, entries = measure_folder(tmp_path, 100)
    assert entries == 3
    assert 200_000 <= size <= 250_000


def test_counting_stops_where_there_are_too_many(tmp_path):
    for number in range(13):
        (tmp_path / str(number)).touch()
    assert measure_folder(tmp_path, 7)[1] == 8


def test_a_folder_that_is_gone_has_nothing_in_it(tmp_path):
    assert measure_folder(tmp_path / "gone", 7) == (0, 0)


def test_the_folder_of_a_process_that_was_killed_can_be_removed():
    code = (
        "from regard.school.sandbox.folders import temporary_folder\nwith temporary_folder() as f: print(f, "
        "flush=True); input()"
    )
    with temporary_folder() as mine:
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as one:
            assert one.stdout is not None
            folder = one.stdout.readline().strip()
            one.send_signal(signal.SIGKILL)
        assert os.path.isdir(folder)
        remove_left_by(one.pid)
        assert not os.path.exists(folder)
        assert mine.is_dir()
