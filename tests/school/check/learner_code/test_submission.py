from pathlib import Path

import pytest

from regard.school.check.learner_code.subject import Subject
from regard.school.check.learner_code.submission import SandboxedSubject, Submission, SubmissionStopped
from regard.school.sandbox.limits import RunLimits
from regard.school.sandbox.outcome import Outcome
from regard.school.sandbox.worker import Worker

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
    return [one.described["name"] for one in submission.subjects(name, "", "ana.py")]


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
