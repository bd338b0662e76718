"""The teacher's key: what a class was asked to write, what it is worth, and sizes and a seed that nobody can know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from regard.school.check.compare.constructor_arguments import PROBES, ProbeSizes
from regard.school.check.request import IN_KEY, Request
from regard.school.grading.rubric import PARTS
from regard.support.toml_files import read_toml

# What a task is called: must it hide the future, and what its verdict is about.
TASKS: dict[str, tuple[bool | None, str]] = {
    "": (None, ""),
    "attention without weights": (None, "attention without weights"),
    "self-attention": (False, "self-attention"),
    "causal self-attention": (True, "self-attention"),
    "multi-head attention": (False, "multi-head attention"),
    "causal multi-head attention": (True, "multi-head attention"),
}
SIZES = {"d_in": "d_in", "num_heads": "num_heads", "head_dim": "head_dim", "context_length": "context_length",
         "batch": "B", "tokens": "T"}  # fmt: skip
LARGEST = 256  # a size; larger ones make every check slow
FOR_THE_CHECK = ("seed", "name", "task", "file", "sizes", "arguments", "weights", "exercise")
FILES = ("exercise", "roster", "overrides", "starter")  # their paths are relative to the key
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("seed", "late_days", "similar"), ((int,), "a whole number")),
    **dict.fromkeys(("sizes", "arguments", "weights", "rubric"), ((dict,), "a table")),
    **dict.fromkeys(("points", "penalty"), ((int, float), "a number")),
    "deadline": ((datetime,), "a date with a time, such as 2026-11-20T23:59:00"),
}  # everything else is a text


@dataclass(frozen=True)
class ClassRules:
    """What holds for the class, beside what its submissions must compute."""

    deadline: datetime | None = None  # without an offset, in the time of this machine
    late_days: int = 0  # that cost nothing
    penalty: float | int = 0.0  # of the points, for each day after them
    roster: str = ""  # paths of CSV files, see gradebook.py
    overrides: str = ""
    starter: str = ""  # the path of a Python file that everybody was given
    similar: int = 80  # percent from which two submissions are pointed out; 101 for never

    def __post_init__(self) -> None:
        if not 0 <= self.penalty <= 1:
            raise ValueError(f"penalty ({self.penalty:g}) must be a part of the points for each day, from 0 to 1")
        if self.late_days < 0:
            raise ValueError(f"late_days ({self.late_days}) must be at least 0")
        if not 1 <= self.similar <= 101:
            raise ValueError(f"similar ({self.similar}) must be a percentage from 1 to 100, or 101 for never")
        if self.deadline is None and (self.late_days or self.penalty):
            raise ValueError("late_days and penalty need a deadline; add deadline = 2026-11-20T23:59:00")


@dataclass(frozen=True)
class GradeKey:
    """What is asked for. All of it may be left out.

    >>> GradeKey(seed=7, sizes={"tokens": 6}).request().probes[0].T
    6
    """

    seed: int = 0  # of weights and inputs
    name: str = ""  # the class or function to check
    task: str = ""  # one of TASKS
    file: str = ""  # of a submission that is a folder: the file to import
    sizes: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the constructor
    weights: Mapping[str, Any] = field(default_factory=dict)  # W_query = "a": which weight is which
    exercise: str = ""  # the path of a teacher's own exercise, which says what is asked for
    title: str = ""  # of a task; its name, unless given
    points: float | int = 0.0  # 0: the sum of the rubric, or 1
    rubric: Mapping[str, Any] = field(default_factory=dict)  # points for each part, scaled to `points`
    tasks: tuple[GradeKey, ...] = ()  # where there are several, each a key of its own
    rules: ClassRules = field(default_factory=ClassRules)

    def __post_init__(self) -> None:
        self._check_points()
        if not 0 <= self.seed < 1 << 62:
            raise ValueError(f"seed ({self.seed}) must be a whole number of at least 0")
        said = ", ".join(name for name in ("name", "task", "sizes", "arguments", "weights") if getattr(self, name))
        if self.exercise and said:
            raise ValueError(f"a key with exercise has no {said}; the exercise itself says what is asked for")
        if self.task not in TASKS:
            raise ValueError(f"task ({self.task}) must be one of: {', '.join(filter(None, TASKS))}")
        for name, value in self.arguments.items():
            if not isinstance(value, (int, float, str, list, dict)):
                raise ValueError(f"arguments.{name} ({value}) must be a number, a text, a list or a table")
        for name, value in self.weights.items():
            if not isinstance(value, str):
                raise ValueError(f"weights.{name} ({value}) must be a text: the name of a weight")
        if unknown := set(self.sizes) - set(SIZES):
            raise ValueError(f"sizes has no {', '.join(sorted(unknown))}; it may have {', '.join(SIZES)}")
        for size, value in self.sizes.items():
            if type(value) is not int or not 2 <= value <= LARGEST:
                raise ValueError(f"sizes.{size} ({value}) must be a whole number from 2 to {LARGEST}")
        probe = self.probe()
        if probe.context_length < probe.T:
            raise ValueError(f"sizes.tokens ({probe.T}) must not exceed sizes.context_length ({probe.context_length})")
        values = [probe.d_in, probe.num_heads, probe.head_dim, probe.B, probe.T, probe.width]
        if len(set(values)) < len(values):
            sizes = (
                f"d_in ({probe.d_in}), num_heads ({probe.num_heads}), head_dim ({probe.head_dim}), batch ({probe.B})"
            )
            sizes += f", tokens ({probe.T}) and num_heads × head_dim ({probe.width})"
            raise ValueError(f"{sizes} must all differ: else a layer that confuses two axes looks right")

    def _check_points(self) -> None:
        if not 0 <= self.points < 1e6:
            raise ValueError(f"points ({self.points:g}) must be at least 0")
        for name, value in self.rubric.items():
            if type(value) not in (int, float) or not 0 <= value < 1e6:
                raise ValueError(f"rubric.{name} ({value}) must be points, at least 0")
            if not self.exercise and name not in PARTS:
                raise ValueError(f"rubric has no {name}; it may have {', '.join(PARTS)}")
        if self.rubric and not sum(self.rubric.values()):
            raise ValueError("rubric has only zeros; give points to a part, or leave it out")
        titles = [one.called for one in self.tasks]
        if twice := sorted({one for one in titles if titles.count(one) > 1}):
            raise ValueError(f"two tasks are called {twice[0]}; give one of them another title")

    @property
    def each(self) -> tuple[GradeKey, ...]:
        """The tasks, one key for each."""
        return self.tasks or (self,)

    @property
    def called(self) -> str:
        """What this task is called in a report."""
        return self.title or self.name or (Path(self.exercise).parent.name if self.exercise else self.task) or "task"

    @property
    def has_points(self) -> bool:
        """Does the key say what things are worth?"""
        return any(one.points or one.rubric for one in self.each)

    def for_the_check(self) -> dict[str, Any]:
        """What decides the verdict: not the points, which can be changed without checking anything again."""
        return {name: getattr(self, name) for name in FOR_THE_CHECK}

    def probe(self) -> ProbeSizes:
        """The sizes at which a layer is checked first."""
        return replace(PROBES[0], **{SIZES[name]: value for name, value in self.sizes.items()})

    def request(self) -> Request:
        """The same for `check`."""
        causal = TASKS[self.task][0]
        return Request(causal, self.arguments, self.weights, (self.probe(), *PROBES[1:]), self.seed, spelling=IN_KEY)


def read_key(path: Path) -> GradeKey:
    """A key from a TOML file; every name in it must be known. [[task]] is one of several tasks."""
    values = read_toml(path)
    tables = values.pop("task") if isinstance(values.get("task"), list) else []
    rules = {one.name: values.pop(one.name) for one in fields(ClassRules) if one.name in values}
    try:
        own = _typed(values, path)
        tasks = tuple(GradeKey(**_shared(own, one), **_typed(one, path)) for one in tables)
        for name in ("title", "points") if tasks else ():
            if name in own:
                raise ValueError(f"a key with [[task]] has no {name} of its own; each task has one")
        return GradeKey(**own, tasks=tasks, rules=ClassRules(**_typed(rules, path)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _shared(own: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """What a task takes from the key, unless it says it itself; an exercise says what is asked for."""
    names = ("seed", "file") if "exercise" in task else (*FOR_THE_CHECK, "rubric")
    return {name: value for name, value in own.items() if name in names and name not in task}


def _typed(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The values, each of its kind; paths are made absolute."""
    known = [one.name for kind in (GradeKey, ClassRules) for one in fields(kind) if one.name not in ("tasks", "rules")]
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"{', '.join(unknown)} is unknown; a key may have {', '.join(known)}")
    for name, value in values.items():
        kinds, words = KINDS.get(name, ((str,), "a text"))
        if type(value) not in kinds:
            raise ValueError(f"{name} ({value}) must be {words}")
    return {k: str((path.parent / v).resolve()) if k in FILES else v for k, v in values.items()}
