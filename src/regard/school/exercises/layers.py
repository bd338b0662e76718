"""Layers: the part of an exercise that is checked by the whole engine of `regard check`.

With other people's files, every experiment is a process of its own, and comparing happens here. A person's own file is
loaded once, and all of the check happens in its process: that is quicker by some twenty processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torch import Tensor

from regard.school.check.check import check_subject
from regard.school.check.own_file import read_verdicts, write_verdicts
from regard.school.check.sandboxed import Submission
from regard.school.check.subject import LocalSubject
from regard.school.check.values import Request
from regard.school.check.verdict import Verdict
from regard.school.exercises.exercise import Exercise, load_exercise
from regard.school.exercises.parts import Layer

DRIVER = """
def drive(submission, tensors, values):
    from regard.school.exercises.layers import drive_layer
    return drive_layer(submission, values)
"""


def check_layer(
    exercise: Exercise, part: Layer, submission: Submission, source: str, file: str, seed: int
) -> tuple[Verdict | None, str]:
    """The verdict on a layer, None where the file defines none of its name; and what was printed."""
    if submission.worker.is_confined or exercise.path is None:
        subjects = submission.subjects(part.name, source, file)
        return (check_subject(subjects[0], _request(part, seed)) if subjects else None), ""
    number = next(i for i, one in enumerate(exercise.parts) if one is part)
    values = {"exercise": str(exercise.path), "part": number, "source": source, "file": file, "seed": seed}
    outcome = submission.run(values, {}, DRIVER)
    verdicts = read_verdicts(outcome.values, outcome.tensors)
    return (verdicts[0] if verdicts else None), outcome.output


def drive_layer(module: ModuleType, values: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[Any]]:
    """Check a layer of a module in this process, and write the verdict down; none where it is not defined."""
    part = load_exercise(values["exercise"]).parts[values["part"]]
    if not isinstance(part, Layer):
        raise TypeError(f"part {values['part']} is no Layer")
    target = vars(module).get(part.name)
    if target is None:
        return {}, []
    subject = LocalSubject(target, values["source"], values["file"])
    return write_verdicts([check_subject(subject, _request(part, values["seed"]))])


def _request(part: Layer, seed: int) -> Request:
    own, weights = dict(part.arguments or {}), dict(part.weights or {})
    return Request(part.causal, own, weights, seed=seed, mistakes=tuple(part.mistakes))
