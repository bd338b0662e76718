"""Trials: what a learner's class can be built and called with. Of many trials, each says what it gave or how it failed.

It is part of the driver, and runs where nothing else of regard can be imported.
"""

from __future__ import annotations

import re
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.school.check.learner_code.construction import argument_of, build, call_with, returned_tensors, tensor_names
from regard.school.check.learner_code.driver import failure, files_of

if TYPE_CHECKING:  # there is no protocol.py where this file runs
    from . import protocol

LONGEST_TRIALS = 1.0  # seconds for all trials of a job


def run_trials(
    target: Any, job: protocol.DriverJob, tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What became of each trial; those for which there was no time have failed."""
    torch.default_generator.manual_seed(0)
    end, late = time.monotonic() + LONGEST_TRIALS, failure(TimeoutError("there was no time for it"), set())
    reports: list[dict[str, Any]] = []
    for one in job["trials"]:
        is_late = time.monotonic() > end
        reports.append({"runs": [], "failed": late} if is_late else _trial(target, one, job, tensors))
    return {"calls": [], "recorded": [], "dropped": [], "trials": reports}, {}


def _trial(
    target: Any, trial: protocol.TrialJob, job: protocol.DriverJob, tensors: dict[str, Tensor]
) -> dict[str, Any]:
    """Build it with these arguments and call it in these ways: what each gives, or how it fails."""
    report: dict[str, Any] = {"runs": []}
    files = files_of(target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subject = build(target, trial["build"])
            if job.get("inside"):
                subject = subject.get_submodule(job["inside"])
            if isinstance(subject, nn.Module):
                subject.eval()
    except Exception as error:
        return {**report, "failed": failure(error, files)}
    own = subject.parameters() if isinstance(subject, nn.Module) else ()
    report["numbers"] = sum(p.numel() for p in own if not nn.parameter.is_lazy(p))
    for call in trial["calls"]:
        for dtype in ("float64", "float32"):  # the second for those that insist on it
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given = {name: argument_of(tensors[name], {"dtype": dtype}) for name in tensor_names(call)}
                try:
                    target = subject.to(getattr(torch, dtype)) if isinstance(subject, nn.Module) else subject
                    one: dict[str, Any] = {
                        "shapes": [list(t.shape) for t in returned_tensors(call_with(target, call, given, None))]
                    }
                except Exception as error:
                    one = {"shapes": [], "failed": failure(error, files)}
            if not re.search("dtype|float|double|scalar type", one.get("failed", {}).get("message", "").lower()):
                break
        report["runs"].append(one)
    return report
