"""Probes: calls of a learner's layer with other texts than the first, many of them in one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.compare.call_forms import (
    HEADS_APART,
    LAYOUTS,
    causal_mask,
    mask_forms,
    positional,
    random_tensor,
)
from regard.school.check.compare.experiment import Experiment
from regard.school.check.learner_code.protocol import CallJob, DriverJob, Failure, Observation

if TYPE_CHECKING:
    from typing_extensions import Unpack

CLOSE = 1e-4  # of the largest number: a layer may compute something in float32, in another order for other sizes


@dataclass
class Probe:
    """Calls of a layer with other texts, each of a new instance unless it says otherwise."""

    result: Experiment
    tensors: dict[str, Tensor] = field(default_factory=dict)
    calls: list[CallJob] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    seen: Observation = field(default_factory=Observation)

    def add(
        self,
        x: Tensor,
        others: Mapping[str, Any] | None = None,
        at: Mapping[int, Any] | None = None,
        used: bool = False,
    ) -> int:
        """Plan a call with x (B, T, width); returns its number.

        others, at: more arguments, by name and by position. used: of the instance of the call before.
        """
        call, (B, T) = self.result.call, x.shape[:2]
        own = {**self.result.inputs(x, [call]), **qkv_inputs(self.result, x)}
        if call.mask:
            own[call.mask] = mask_forms(causal_mask(T), torch.float64, B)[call.mask]
        names = {name: self._keep(value) for name, value in own.items() if name in call.names}
        args = [with_tensors(one, names) for one in call.args]
        for position, value in (at or {}).items():
            args[position : position + 1] = [self._keep(value)]
        given = {name: with_tensors(one, names) for name, one in call.kwargs.items()}
        given |= {name: self._keep(value) for name, value in (others or {}).items()}
        self.calls.append({"args": args, "kwargs": given, "fresh": not used})
        self.sizes.append((1 if call.layout == "one text" else B, T))
        return len(self.calls) - 1

    def run(self, **changes: Unpack[DriverJob]) -> list[Tensor | None]:
        """The output of each call as (B, T, width), None where it failed or has another shape."""
        changes["calls"] = self.calls
        self.seen = self.result.run(1, self.tensors, **changes)
        width, outs = self.result.out.shape[-1], []
        for run, (B, T) in zip(self.seen.runs, self.sizes, strict=False):
            found = self.result.call.outputs(run.outputs, B, T) if run.failed is None else []
            fitting = [t for t in found if t.shape[-1] == width]
            outs.append(fitting[0].to(torch.float64) if fitting else None)
        return outs + [None] * (len(self.calls) - len(outs))

    def failure(self, number: int) -> Failure | None:
        """Why a call failed."""
        return self.seen.runs[number].failed if number < len(self.seen.runs) else self.seen.failed

    def _keep(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        name = f"probe {len(self.tensors)}"
        self.tensors[name] = value
        return name


def with_tensors(one: Any, names: Mapping[str, str]) -> Any:
    """An argument of a call with other tensors: a name, or a list or dict of them."""
    if isinstance(one, str):
        return names.get(one, one)
    if isinstance(one, list):
        return [with_tensors(part, names) for part in one]
    if "dict" in one:
        return {**one, "dict": {name: with_tensors(part, names) for name, part in one["dict"].items()}}
    return {**one, "linear": names.get(one["linear"], one["linear"])} if "linear" in one else one


def is_refused(result: Experiment, failure: Failure) -> bool:
    """Does the code itself say that it does not take this: an assert, or a raise?"""
    lines = result.subject.source.splitlines()
    line = lines[failure.line - 1].strip() if 0 < failure.line <= len(lines) else ""
    return line.startswith(("assert ", "raise "))


def text(result: Experiment, seed: int, B: int, T: int) -> Tensor:
    """Another text for a layer, (B, T, width); for a function of q, k and v, these three side by side."""
    width = 3 * result.case.width if result.takes_qkv else result.tensors["x"].shape[-1]
    return random_tensor(seed + result.request.seed, B, T, width)


def qkv_inputs(result: Experiment, *texts: Tensor) -> dict[str, Tensor]:
    """q, k and v in the layout in which a function takes them: of one text, or each of its own."""
    if not result.takes_qkv:
        return {}
    layout, parts = result.call.layout, list(texts if len(texts) == 3 else texts[0].chunk(3, dim=-1))
    if layout == "one text":
        parts = [t[0] for t in parts]
    elif layout in HEADS_APART:
        parts = [t.unflatten(2, (result.case.num_heads, -1)) for t in parts]
        parts = [t.transpose(1, 2) if layout == HEADS_APART[0] else t for t in parts]
    names = "qkv" if layout == LAYOUTS[0] else [f"{name}, {layout}" for name in "qkv"]
    return {name: t.contiguous() for name, t in zip(names, parts, strict=True)}


def close(a: Tensor | None, b: Tensor | None) -> bool:
    """Are both there, and the same?"""
    return a is not None and b is not None and a.shape == b.shape and same(a, b, CLOSE)


def call_arguments(result: Experiment) -> list[str]:
    """The names of forward's arguments, in order; those that are given by position are first."""
    call = result.subject.described["call"]
    first = [p["name"] for p in positional(call)]
    return first + [p["name"] for p in call if p["name"] not in first and p["kind"] == "KEYWORD_ONLY"]


def one_line(failure: Failure) -> str:
    """The first line of an error's message."""
    return (failure.message.splitlines() or [failure.type])[0]
