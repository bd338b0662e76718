"""A certificate: what was done, and running it again."""

import json

import pytest
from tiny_course import write_course

from regard.school.course.answers import AnswerChecker, check_learner
from regard.school.course.certificate import make_certificate, read_certificate, recheck
from regard.school.course.courses import read_course

RIGHT = {"twice": "def twice(x):\n    return x + x\n", "choose": 'answer = "b"\n'}


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker(confined=True) as checker:
        yield checker


@pytest.fixture
def done(learner, checker):
    """A learner who has done two of three exercises."""
    for name in ("hello", "twice"):
        lesson = learner.course.lesson(name)
        if name in RIGHT:
            learner.file_of(lesson).write_text(RIGHT[name])
        check_learner(learner, lesson, checker)
    learner.next_hint(learner.course.lesson("choose"))
    return learner


def written(certificate, path):
    path.write_text(json.dumps(certificate))
    return path


def test_it_holds_the_progress_and_the_hashes(done):
    certificate = make_certificate(done)
    assert (certificate["done"], certificate["of"]) == (2, 3)
    assert certificate["course"] == {"title": "A tiny course", "hash": done.course.hash}
    hello, twice, choose = certificate["exercises"]
    assert (twice["state"], twice["attempts"], twice["file"], twice["changed_since_done"]) == (
        *("done", 1, "02_twice.py"),
        False,
    )
    assert (hello["state"], choose["state"], choose["hints"], len(choose["answer"])) == ("done", "open", 1, 64)


def test_an_answer_that_was_changed_after_it_was_right_is_marked(done):
    done.file_of(done.course.lesson("twice")).write_text("changed\n")
    assert make_certificate(done)["exercises"][1]["changed_since_done"]


def test_it_says_what_it_is_and_is_read_back(done, tmp_path):
    certificate = make_certificate(done)
    assert "It proves nothing by itself" in certificate["about"]
    assert "signature" not in certificate
    assert read_certificate(written(certificate, tmp_path / "c.json")) == certificate


def test_one_that_an_older_version_signed_is_read(done, tmp_path):
    certificate = make_certificate(done) | {"signature": "0" * 64}
    assert read_certificate(written(certificate, tmp_path / "c.json")) == certificate


@pytest.mark.parametrize(
    "change", [{"exercises": []}, {"exercises": [{"name": "twice"}]}, {"course": {"hash": 5}}, {"date": None}]
)
def test_one_whose_fields_are_not_as_they_were_written_is_refused(done, tmp_path, change):
    with pytest.raises(ValueError, match=r"is no certificate; make one with: regard learn status --json"):
        read_certificate(written(make_certificate(done) | change, tmp_path / "c.json"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "course": 5, "signature": ""}'])
def test_what_is_no_certificate_is_refused(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ValueError, match=r"is no certificate; make one with: regard learn status --json"):
        read_certificate(tmp_path / "c.json")


def test_a_later_format_is_refused_by_its_number(done, tmp_path):
    with pytest.raises(ValueError, match="has format 2; this version of regard reads 1"):
        read_certificate(written(make_certificate(done) | {"format": 2}, tmp_path / "c.json"))


def statuses(certificate, done, checker):
    return {one.name: one.status for one in recheck(certificate, done.path, done.course, checker)}


def test_answers_are_run_again(done, checker):
    certificate = make_certificate(done)
    assert statuses(certificate, done, checker) == {"hello": "right", "twice": "right"}


def test_the_answers_of_a_forged_certificate_are_found_wrong(done, checker, tmp_path):
    certificate = make_certificate(done)
    certificate["exercises"][2]["state"] = "done"
    forged = read_certificate(written(certificate, tmp_path / "c.json"))
    assert statuses(forged, done, checker) == {"hello": "right", "twice": "right", "choose": "wrong"}


def test_another_file_than_that_of_the_certificate_is_told(done, checker):
    certificate = make_certificate(done)
    file = done.file_of(done.course.lesson("twice"))
    file.write_text("def twice(x):\n    return 2 * x\n")
    assert statuses(certificate, done, checker)["twice"] == "changed"
    file.write_text("def twice(x):\n    return x\n")
    told = recheck(certificate, done.path, done.course, checker)[1]
    assert (told.status, told.says) == ("wrong", "not doubled; it is another file than the certificate's")
    file.write_text("def twice(x):\n    while True: pass\n")
    file.unlink()
    assert statuses(certificate, done, checker)["twice"] == "missing"


def test_another_version_of_the_course_is_refused(done, checker, tmp_path):
    other = read_course(write_course(tmp_path / "other", {"twice/start.py": '"""Double."""\n'}))
    with pytest.raises(ValueError, match="of another version of the course"):
        recheck(make_certificate(done), done.path, other, checker)


def test_an_answer_that_imports_regard_is_run_outside_of_the_sandbox_only(done, checker):
    file = done.file_of(done.course.lesson("twice"))
    file.write_text("import regard.steps\n\n\ndef twice(x):\n    return x + x\n")
    certificate = make_certificate(done)
    told = recheck(certificate, done.path, done.course, checker)[1]
    assert (told.status, told.says) == ("unchecked", "it imports regard, which the sandbox hides")
    with AnswerChecker() as trusting:
        assert statuses(certificate, done, trusting)["twice"] == "right"
