import torch
from torch import nn

from regard.school.check.learner_code import trials
from regard.school.check.learner_code.protocol import check_report, read_report
from regard.school.check.learner_code.trials import run_trials

X = {"x": torch.ones(2, 5, 6)}


class Halves(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        assert width % heads == 0
        self.linear = nn.Linear(width, heads)

    def forward(self, x):
        return {"out": self.linear(x.float() if x.dtype != torch.float32 else x)}


def trial(width, heads, *calls):
    return {"build": {"width": width, "heads": heads}, "calls": [{"args": list(args)} for args in calls or [["x"]]]}


def seen(*jobs):
    job = {"trials": list(jobs)}
    told, tensors = run_trials(Halves, job, X)
    check_report(told, tensors, job)
    return read_report(told, tensors, X).trials


def test_every_trial_says_what_it_gave_or_how_it_failed():
    built, called, good = seen(trial(6, 4), trial(8, 2), trial(6, 2))
    assert built["failed"].type == "AssertionError"
    assert called["runs"][0]["failed"].type == "RuntimeError"
    assert good["runs"] == [{"shapes": [[2, 5, 2]]}]


def test_a_layer_that_insists_on_float32_gets_that():
    assert "failed" not in seen(trial(6, 2))[0]["runs"][0]


def test_trials_for_which_there_is_no_time_have_failed(monkeypatch):
    monkeypatch.setattr(trials, "LONGEST_TRIALS", -1.0)
    (one,) = seen(trial(6, 2))
    assert one["failed"].type == "TimeoutError"
