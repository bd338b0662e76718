import dataclasses

import pytest
import torch

from benchmarks.check.cases import right_layers, wrong_layers
from regard.school.check.own_file import check_file, check_here, read_verdicts, write_verdicts
from regard.school.check.request import Request
from regard.school.check.verdict import Example, Finding, Verdict
from regard.school.sandbox.outcome import Outcome, SubmissionFailure
from regard.school.sandbox.worker import Worker

WRONG = next(case for case in wrong_layers() if case.names == ("scale by √d_model",) and case.layer == "einsum")


class AnsweringWorker(Worker):
    """Answers every job with the same outcome."""

    def __init__(self, outcome):
        self.outcome = outcome

    def run(self, job):
        self.job = job
        return self.outcome


@pytest.fixture
def homework(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text(WRONG.source)
    return path


def test_verdicts_come_back_as_they_were_written():
    seen, expected = torch.tensor([[1.0, float("nan")]]), torch.tensor([[2.0, -torch.inf]])
    findings = [
        Finding("a", "b", "c", "d", "e", 7, "code", Example("about", seen, expected)),
        Finding("", "x", is_warning=True),
    ]
    verdicts = [Verdict("A", "task", findings, ["note"], "f.py", sizes={"d": 3}), Verdict("B", "", problem="p")]
    tensors, written = write_verdicts(verdicts)
    first, second = read_verdicts(written, tensors)
    assert second == verdicts[1]
    torch.testing.assert_close(first.findings[0].example.seen, seen, equal_nan=True)
    torch.testing.assert_close(first.findings[0].example.expected, expected)
    plain = [dataclasses.replace(one, example=None) for one in first.findings]
    assert plain == [dataclasses.replace(one, example=None) for one in findings]
    assert dataclasses.replace(first, findings=[]) == dataclasses.replace(verdicts[0], findings=[])


def test_a_file_is_checked_here_by_its_layers_or_by_a_name(homework):
    for name in ("", "MultiHeadAttention"):
        (verdict,) = check_here(homework, name, Request())
        assert [one.name for one in verdict.mistakes] == ["scale by √d_model"]


def test_an_error_is_a_note_and_where_there_is_nothing_else_a_finding(homework):
    homework.write_text(right_layers()["einsum"] + "\n1 / 0\n")
    (verdict,) = check_here(homework, "", Request())
    assert (verdict.status, verdict.notes) == ("right", ["Line 34 was skipped: ZeroDivisionError: division by zero."])
    homework.write_text("1 / 0\n")
    (verdict,) = check_here(homework, "MultiHeadAttention", Request())
    assert [(one.says, one.line, one.code) for one in verdict.findings] == [
        ("The file does not run: ZeroDivisionError: division by zero.", 1, "1 / 0")
    ]


def outcome(word, sentence, kind="ValueError"):
    failure = SubmissionFailure(kind, "it has no No", "run") if word == "failed" else None
    return Outcome(word, sentence, failure=failure)


def test_how_its_process_ended_is_why_it_could_not_be_checked(homework):
    worker = AnsweringWorker(outcome("killed", "Its process was killed by SIGSEGV."))
    (verdict,) = check_file(homework, "", worker, arguments={"n": (3, "x")}, seconds=7)
    assert (verdict.name, verdict.problem) == ("homework.py", "killed: Its process was killed by SIGSEGV.")
    assert worker.job.limits.wall_seconds == 7
    worker = AnsweringWorker(outcome("failed", "It raised IndexError: list index out of range", "IndexError"))
    (verdict,) = check_file(homework, "A", worker)
    assert (verdict.name, verdict.problem) == (
        "A",
        "the check itself failed (IndexError: list index out of range)",
    )


def test_what_is_wrong_with_the_options_is_raised(homework):
    with pytest.raises(ValueError, match="it has no No"):
        check_file(homework, "No", AnsweringWorker(outcome("failed", "It raised ValueError: it has no No")))
    with pytest.raises(ValueError, match="is not a Python file or a notebook"):
        check_file(homework.parent, "", AnsweringWorker(None))
