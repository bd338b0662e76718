from pathlib import Path

import pytest
import torch

from regard.school.check.learner_code.subject import NotHere, Subject
from regard.school.check.learner_code.submission import SandboxedSubject, Submission, SubmissionStopped
from regard.school.check.request import Request
from regard.school.check.whole_file import check_all
from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.outcome import Outcome
from regard.school.sandbox.protection import ProtectionMissing
from regard.school.sandbox.source_text import read_source
from regard.school.sandbox.worker import Worker
from school.check.student_files import FILES, summary, write

SOME = [one if i % 3 == 0 else pytest.param(*one, marks=pytest.mark.slow) for i, one in enumerate(FILES)]
X = {"name": "x", "kind": "POSITIONAL_OR_KEYWORD", "required": True, "default": None}


class FakeWorker(Worker):
    """Answers every job with the same outcome."""

    def __init__(self, values, word="finished"):
        self.limits = RunLimits()
        self.outcome, self.jobs = Outcome(word, "It was so.", {}, values), []

    def run(self, job):
        self.jobs.append(job)
        return self.outcome


def layer(name, **changes):
    return {"name": name, "build": [X], "call": [X], **changes}


def chosen(values, name=""):
    submission = Submission(Path("ana.py"), FakeWorker(values), 10.0)
    described = {"skipped": [], **values} if isinstance(values, dict) else values
    submission.worker.outcome = Outcome("finished", "It was so.", {}, described)
    return [one.described["name"] for one in submission.contents("", "ana.py").subjects(name)]


def test_attention_is_chosen_before_other_layers_and_functions():
    softmax = {"name": "softmax", "call": [X]}
    assert chosen({"classes": [layer("Mlp"), layer("SelfAttention")], "functions": [softmax]}) == ["SelfAttention"]
    assert chosen({"classes": [layer("Mlp")], "functions": [softmax]}) == ["Mlp"]
    assert chosen({"classes": [], "functions": [softmax, {"name": "helper", "call": [X]}]}) == ["softmax"]
    assert chosen({"classes": [layer("Mlp")], "functions": [softmax]}, "softmax") == ["softmax"]


@pytest.mark.parametrize(
    "values",
    [
        None,
        {"classes": 7, "functions": []},
        {"classes": [layer("\x1b[31m")], "functions": []},
        {"classes": [layer("A", call=[{**X, "default": [1]}])], "functions": []},
        {"classes": [{"name": "A"}], "functions": []},
        {"classes": [], "functions": [], "skipped": [{"line": -1}]},
    ],
)
def test_a_forged_description_is_refused(values):
    with pytest.raises(SubmissionStopped, match="malformed: What it returned is no result"):
        chosen(values)


def test_a_run_that_did_not_finish_stops_the_check():
    submission = Submission(Path("ana.py"), FakeWorker(None, "killed"), 10.0)
    subject = SandboxedSubject(submission, layer("A"), "", "ana.py")
    assert isinstance(subject, Subject)
    with pytest.raises(SubmissionStopped, match=r"killed: It was so\."):
        subject.run({"build": {}}, {})


def test_a_run_gets_the_time_that_is_left():
    worker = FakeWorker({"calls": [], "recorded": [], "dropped": []})
    submission = Submission(Path("ana.py"), worker, 10.0)
    submission.left = 2.5
    SandboxedSubject(submission, layer("A"), "", "ana.py").run({"build": {}}, {})
    (job,) = worker.jobs
    assert (job.limits.wall_seconds, job.limits.cpu_seconds) == (2.5, 4)
    assert job.values == {"name": "A", "job": {"build": {}}}
    assert submission.left < 2.5


def test_its_text_runs_in_the_sandbox_unless_it_must_run_without_a_skip():
    worker = FakeWorker({"classes": [], "functions": [], "skipped": []})
    submission = Submission(Path("ana.py"), worker, 10.0)
    submission.contents("x = 1", "ana.py")
    submission.contents("x = 1", "ana.py", skips=False)
    assert [job.source for job in worker.jobs] == ["x = 1", None]


def test_an_experiment_gives_little_time_to_what_no_definition_needs():
    worker = FakeWorker({"classes": [layer("A")], "functions": [], "skipped": []})
    file = Submission(Path("ana.py"), worker, 10.0).contents("x = 1", "ana.py")
    worker.outcome = Outcome("finished", "It was so.", {}, {"calls": [], "recorded": [], "dropped": []})
    file.own[0].run({"build": {}}, {})
    assert [job.spare_seconds for job in worker.jobs] == [2.0, 0.05]
    assert worker.jobs[1].source == "x = 1"


def test_what_was_asked_before_is_remembered():
    worker = FakeWorker({"calls": [], "recorded": [], "dropped": []})
    subject = SandboxedSubject(Submission(Path("ana.py"), worker, 10.0), layer("A"), "", "ana.py")
    first = subject.run({"build": {"d": 3}}, {"x": torch.ones(2)})
    assert subject.run({"build": {"d": 3}}, {"x": torch.ones(2)}) is first
    subject.run({"build": {"d": 5}}, {"x": torch.ones(2)})
    subject.run({"build": {"d": 3}}, {"x": torch.zeros(2)})
    assert len(worker.jobs) == 3


def test_a_package_that_is_missing_is_no_failure_of_the_learners():
    failed = {"type": "Unavailable", "message": "einops", "line": 3, "function": "forward", "shapes": {}}
    worker = FakeWorker({"calls": [], "recorded": [], "dropped": [], "failed": failed})
    subject = SandboxedSubject(Submission(Path("ana.py"), worker, 10.0), layer("A"), "", "ana.py")
    with pytest.raises(NotHere, match="einops"):
        subject.run({"build": {}}, {})


@pytest.mark.parametrize(("name", "content", "expected"), SOME, ids=[one[0] for one in FILES])
def test_the_sandbox_gives_the_verdict_of_a_check(tmp_path, sandbox, name, content, expected):
    path = write(tmp_path, name, content)
    is_folder = isinstance(content, dict)
    entry = str(path.relative_to(tmp_path)) if is_folder else None
    submission = Submission(tmp_path if is_folder else path, sandbox, 20.0, entry)
    file = submission.contents(read_source(path), path.name)
    assert [summary(one) for one in check_all(file, Request())] == [expected]


@pytest.fixture(scope="module")
def sandbox():
    with Worker(RunLimits()) as one:
        try:
            assert one.protection.missing == {}
        except ProtectionMissing as error:
            pytest.skip(str(error))
        yield one
