"""The learner's folder."""

import os
from pathlib import Path

import pytest
from tiny_course import FILES, write_course

from regard.school.course.courses import OWN_COURSE, read_course
from regard.school.course.learner import (
    LearnerFolder,
    SavedFiles,
    default_folder,
    find_folder,
    open_folder,
    start_folder,
    today,
)
from regard.school.course.progress import HEADING


def test_a_start_writes_every_exercise_and_the_progress(course, tmp_path):
    learner, written = start_folder(tmp_path / "a" / "b", course)
    assert [path.name for path in written] == ["01_hello.py", "02_twice.py", "03_choose.py"]
    assert sorted(path.name for path in learner.path.iterdir()) == [*(path.name for path in written), "progress.txt"]
    assert written[1].read_text() == FILES["twice/start.py"]
    assert learner.progress.course == str(course.folder)
    assert learner.current() == course.lessons[0]


def test_a_second_start_writes_what_is_missing_and_nothing_else(learner, course):
    file = learner.file_of(course.lesson("twice"))
    file.write_text("mine\n")
    learner.file_of(course.lesson("choose")).unlink()
    learner.progress.update("hello", state="done")
    again, written = start_folder(learner.path, course)
    assert [path.name for path in written] == ["03_choose.py"]
    assert file.read_text() == "mine\n"
    assert again.progress.record("hello").is_done


def test_an_answer_is_found_under_the_number_it_once_had(learner, course, tmp_path):
    file = learner.file_of(course.lesson("twice"))
    file.rename(file.with_name("07_twice.py"))
    (learner.path / "old_twice.py").write_text("another file\n")
    assert learner.file_of(course.lesson("twice")).name == "07_twice.py"
    assert start_folder(learner.path, course)[1] == []


def test_a_start_refuses_a_file_the_course_itself_and_another_course(learner, course, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; give the name of a folder"):
        start_folder(tmp_path / "file", course)
    for inside in (course.folder, course.folder / "mine"):
        with pytest.raises(ValueError, match="is the course itself, or in it"):
            start_folder(inside, course)
    other = read_course(write_course(tmp_path / "other"))
    with pytest.raises(ValueError, match="belongs to the course A tiny course; choose another folder"):
        start_folder(learner.path, other)


def test_a_file_that_was_written_meanwhile_is_kept(learner, course, monkeypatch):
    file = learner.file_of(course.lesson("twice"))
    file.write_text("mine\n")
    monkeypatch.setattr(Path, "exists", lambda path: False)  # the look came before the file
    with pytest.raises(ValueError, match=r"_hello\.py exists already; nothing was written"):
        learner.write_missing()
    assert file.read_text() == "mine\n"
    assert not list(learner.path.glob(".*.partial"))


def test_a_reset_keeps_every_old_file(learner, course):
    lesson = course.lesson("twice")
    file = learner.file_of(lesson)
    learner.progress.update("twice", state="done", hints=2, attempts=5, answer="77ab")
    kept = []
    for text in ("first\n", "second\n"):
        file.write_text(text)
        kept.append(learner.reset(lesson))
        assert file.read_text() == FILES["twice/start.py"]
    assert [(path.name, path.read_text()) for path in kept] == [
        ("02_twice.py.old-1", "first\n"),
        ("02_twice.py.old-2", "second\n"),
    ]
    record = learner.progress.record("twice")
    assert (record.state, record.hints, record.attempts) == ("open", 2, 5)
    file.unlink()
    assert learner.reset(lesson) is None
    assert file.exists()
    assert learner.file_of(lesson) == file


def test_the_next_exercise_is_the_first_after_this_one_that_is_not_done(learner, course):
    hello, twice, choose = course.lessons
    assert learner.after(hello) == twice
    learner.progress.update("twice", state="done")
    assert (learner.current(), learner.after(hello), learner.after(choose)) == (hello, choose, hello)
    learner.progress.update("hello", state="done")
    learner.progress.update("choose", state="done")
    assert (learner.current(), learner.after(choose)) == (None, None)


def test_hints_come_one_by_one_are_counted_and_stay(learner, course):
    lesson = course.lesson("twice")
    seen = [[level for level, _ in learner.next_hint(lesson)] for _ in range(4)]
    assert seen == [["where"], ["where", "why"], ["where", "why", "almost"], ["where", "why", "almost"]]
    assert learner.progress.record("twice").hints == 3


def test_hints_after_success_are_all_shown_and_not_counted(learner, course):
    learner.progress.update("twice", state="done", hints=1)
    assert [text for _, text in learner.next_hint(course.lesson("twice"))][-1] == "Use + once, and x on both sides."
    assert learner.progress.record("twice").hints == 1


def test_an_attempt_is_counted_once_for_each_new_answer(learner, course):
    lesson = course.lesson("twice")
    for answer, is_right, state, attempts in [
        (b"a", False, "open", 1),
        (b"a", False, "open", 1),
        (b"b", False, "open", 2),
        (b"c", True, "done", 3),
        (b"c", True, "done", 3),
        (b"d", False, "done", 3),
    ]:
        learner.note_checked(lesson, answer, is_right)
        record = learner.progress.record("twice")
        assert (record.state, record.attempts, record.date) == (state, attempts, today())
    before = record.answer
    learner.note_checked(lesson, b"e", True)
    assert learner.progress.record("twice").answer != before
    assert learner.progress.record("twice").attempts == 3


def test_a_solution_that_was_seen_is_noted_unless_the_exercise_is_done(learner, course):
    learner.note_solution(course.lesson("twice"))
    learner.progress.update("choose", state="done")
    learner.note_solution(course.lesson("choose"))
    assert [learner.progress.record(name).solution for name in ("twice", "choose")] == ["seen", ""]


def test_the_folder_is_found_from_inside_and_from_above(learner, tmp_path):
    assert find_folder(learner.path) == find_folder(tmp_path) == learner
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "progress.txt").write_text(f"{HEADING}\ncourse: regard\n")
    with pytest.raises(
        ValueError, match="several courses here: answers, other; go into one of them, as in: cd answers"
    ):
        find_folder(tmp_path)


def test_a_folder_without_a_course_says_how_to_start(tmp_path):
    (tmp_path / "progress.txt").write_text("of something else\n")
    says = "no course in this folder; cd into the folder of your course, or start one here: regard learn start"
    with pytest.raises(ValueError, match=says):
        find_folder(tmp_path)


def test_a_folder_inside_a_course_says_where_the_course_is_and_gets_none_of_its_own(learner, course):
    inside = learner.path / "notes" / "more"
    inside.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"the course is in the folder above, .*answers; go there: cd \.\./\.\."):
        find_folder(inside)
    with pytest.raises(ValueError, match=r"would be inside .*answers, which is a course already; go on there"):
        start_folder(inside / "attention-course", course)


def test_a_start_without_a_folder_goes_to_the_files_that_are_here(learner, course):
    assert default_folder(course, learner.path) == learner.path
    (learner.path / "progress.txt").unlink()
    assert default_folder(course, learner.path) == learner.path
    for name in ("01_hello.py", "02_twice.py"):
        (learner.path / name).unlink()  # one of three files may be of something else
    assert default_folder(course, learner.path) == learner.path / "tiny-answers"


def test_a_lost_progress_file_is_written_anew_by_a_start(learner, course):
    learner.file_of(course.lesson("twice")).write_text("mine\n")
    (learner.path / "progress.txt").unlink()
    says = r"your files are here, but progress\.txt is missing; regard learn start \. --course .*tiny writes it anew"
    with pytest.raises(ValueError, match=says):
        find_folder(learner.path, course.folder)
    assert start_folder(learner.path, course)[1] == []
    assert find_folder(learner.path).file_of(course.lesson("twice")).read_text() == "mine\n"


def test_a_course_that_moved_is_asked_for_once(learner, course, tmp_path):
    course.folder.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"is not there; if it has moved: regard learn --course FOLDER"):
        open_folder(learner.path)
    assert open_folder(learner.path, tmp_path / "moved").course.title == "A tiny course"
    assert open_folder(learner.path).course.folder == tmp_path / "moved"


def test_where_answers_go_by_default(course):
    assert str(default_folder(course, Path())) == "tiny-answers"
    own = LearnerFolder(course.folder, course).course.__class__(OWN_COURSE, "Ours", course.lessons)
    assert str(default_folder(own, Path())) == "attention-course"


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
