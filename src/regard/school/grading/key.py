"""The teacher's key: what a class was asked to write, and sizes and a seed that no submission can know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from regard.school.check.compare.constructor_arguments import PROBES, ProbeSizes
from regard.school.check.request import IN_KEY, Request
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

    def __post_init__(self) -> None:
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

    def probe(self) -> ProbeSizes:
        return replace(PROBES[0], **{SIZES[name]: value for name, value in self.sizes.items()})

    def request(self) -> Request:
        causal = TASKS[self.task][0]
        return Request(causal, self.arguments, self.weights, (self.probe(), *PROBES[1:]), self.seed, spelling=IN_KEY)


def read_key(path: Path) -> GradeKey:
    """A key from a TOML file; every name in it must be known."""
    values = read_toml(path)
    known = {one.name: one for one in fields(GradeKey)}
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"{path}: {', '.join(unknown)} is unknown; a key may have {', '.join(known)}")
    for name, value in values.items():
        kind, words = {"seed": (int, "a whole number"), "sizes": (dict, "a table"), "arguments": (dict, "a table"),
                       "weights": (dict, "a table")}.get(name, (str, "a text"))  # fmt: skip
        if type(value) is not kind:
            raise ValueError(f"{path}: {name} ({value}) must be {words}")
    if "exercise" in values:
        values["exercise"] = str((path.parent / values["exercise"]).resolve())
    try:
        return GradeKey(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
