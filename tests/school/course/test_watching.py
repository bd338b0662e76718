"""Files that are saved, by any editor."""

import os

import pytest

from regard.school.course.watching import SavedFiles


@pytest.fixture
def files(tmp_path):
    paths = {name: tmp_path / f"{name}.py" for name in ("scale", "mask")}
    for path in paths.values():
        path.write_text("first\n")
    return paths


def looks(saved: SavedFiles, count: int = 4) -> list[str]:
    return [name for _ in range(count) for name in saved.saved()]


def save_in_place(path, text):
    path.write_text(text)


def save_by_rename(path, text):
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").replace(path)


def save_with_backup(path, text):
    path.rename(path.with_suffix(".py~"))
    path.write_text(text)
    path.with_suffix(".py~").unlink()


SAVES = [save_in_place, save_by_rename, save_with_backup]


@pytest.mark.parametrize("save", SAVES)
def test_a_save_is_told_exactly_once(files, save):
    saved = SavedFiles(files)
    assert looks(saved) == []
    for text in ("second\n", "third\n", "first\n"):
        save(files["scale"], text)
        assert looks(saved) == ["scale"]


@pytest.mark.parametrize("save", SAVES)
def test_a_save_of_what_was_there_is_not_told(files, save):
    saved = SavedFiles(files)
    save(files["scale"], "first\n")
    assert looks(saved) == []


def test_a_file_that_is_still_written_to_is_not_told_until_it_rests(files):
    saved = SavedFiles(files)
    for text in ("", "def", "def f", "def f():\n    pass\n"):
        files["scale"].write_text(text)
        assert saved.saved() == []
    assert looks(saved) == ["scale"]


def test_a_file_that_vanishes_and_comes_back_is_told_once_if_it_is_new(files):
    saved = SavedFiles(files)
    files["scale"].unlink()
    assert looks(saved) == []
    files["scale"].write_text("first\n")
    assert looks(saved) == []
    files["scale"].unlink()
    assert looks(saved) == []
    files["scale"].write_text("new\n")
    assert looks(saved) == ["scale"]


def test_each_of_several_saved_files_is_told(files):
    saved = SavedFiles(files)
    for path in files.values():
        path.write_text("second\n")
    assert sorted(looks(saved)) == ["mask", "scale"]


def test_what_is_noted_is_not_told_and_a_save_after_it_is(files):
    saved = SavedFiles(files)
    files["scale"].write_text("second\n")
    saved.note("scale")
    assert looks(saved) == []
    save_by_rename(files["scale"], "third\n")
    assert looks(saved) == ["scale"]


def test_a_new_time_alone_is_no_save(files):
    saved = SavedFiles(files)
    os.utime(files["scale"], ns=(5, 7))
    assert looks(saved) == []
