"""Values: the output of a learner's layer, with known weights, against the formula and every known mistake in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.checking.building import Sizes, arguments
from regard.checking.calling import Call, calls, forms, output_of
from regard.checking.finding import Assignment, assignments
from regard.checking.subject import Failure, Observation, Subject
from regard.mistakes.formula import Given
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import MISTAKES, Variant, explanations_among


@dataclass(frozen=True)
class Task:
    """What a layer should compute."""

    name: str
    causal: bool = True
    projected: bool = True
    scaled: bool = True
    out_proj: bool = True


@dataclass
class Comparison:
    """A layer beside the formula at one size. variants: the smallest explanations; None where there is none."""

    sizes: Sizes
    observation: Observation
    given: Given | None = None
    call: Call | None = None
    out: Tensor | None = None
    assignment: Assignment | None = None
    variants: list[Variant] | None = None
    failed: Failure | None = None
    unread: str = ""  # why its parameters could not be read

    @property
    def right(self) -> bool:
        """Is it the formula itself?"""
        return self.variants == [()]


def known_weights(observation: Observation, seed: int) -> dict[str, Tensor]:
    """Random values for every parameter, of a size that keeps the softmax from saturating."""
    generator = torch.Generator().manual_seed(seed)
    values = {}
    for p in observation.contents.get("parameters", ()):
        shape = p["shape"]
        spread = 1.5 * max(1, shape[-1]) ** -0.5 if len(shape) > 1 else 0.3
        values[p["name"]] = torch.randn(shape, dtype=torch.float64, generator=generator) * spread
    return values


def compare(subject: Subject, task: Task, sizes: Sizes, seed: int, own: dict[str, Any], record: bool = False) -> Comparison:
    """Build it at these sizes, put known weights in, run it, and explain what it gives."""
    built = None if getattr(subject, "is_built", False) else arguments(subject.described, sizes, **own).arguments
    first = subject.run({"build": built}, {})
    if first.failed is not None:
        return Comparison(sizes, first, failed=first.failed)
    weights = known_weights(first, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    d_in = _d_in(first, subject, sizes, own)
    x = torch.randn(sizes.B, sizes.T, d_in, dtype=torch.float64, generator=generator)
    masks = forms(sizes.T, task.causal, torch.float64)
    ways = list(calls(subject.described, list(masks) if task.causal else ["True = may attend", "added"]))
    tensors = {"x": x, **masks, **{f"state.{name}": value for name, value in weights.items()}}
    job = {"build": built, "state": True, "calls": [way.as_json() for way in ways], "record": record, "seed": seed}
    seen = subject.run(job, tensors)
    if seen.failed is not None:
        return Comparison(sizes, seen, failed=seen.failed)
    heads = _heads(seen, sizes)
    ways_to_read = assignments(seen.contents.get("parameters", []), weights, d_in, heads) if weights else [None]
    best = Comparison(sizes, seen, failed=seen.failure)
    if not ways_to_read:
        best.unread = "its projections could not be told by name or shape"
        return best
    options = []
    for way, run in zip(ways, seen.runs, strict=True):
        out = output_of(run.outputs, sizes.B, sizes.T) if run.failed is None else None
        if out is not None:
            options += [(way, out, read, _given(x, read, heads, task)) for read in ways_to_read]
    for variants, (way, out, read, given) in explanations_among(
        [(given, out, _mistakes(read)) for _, out, read, given in options], options
    ):
        return replace(best, given=given, call=way, out=out, assignment=read, variants=variants, failed=None)
    if options:
        way, out, read, given = options[0]
        return replace(best, given=given, call=way, out=out, assignment=read, variants=None, failed=None)
    return best


def _mistakes(read: Assignment | None) -> tuple[Mistake, ...]:
    """Mistakes that can be told apart: without names nobody knows which projection is which."""
    if read is None or read.named:
        return MISTAKES if read is None or read.linear else tuple(m for m in MISTAKES if m.name != "transposed weights")
    return tuple(m for m in MISTAKES if not (m.step == "project" and m.name != "embedding split before projection"))


def _given(x: Tensor, read: Assignment | None, heads: int, task: Task) -> Given:
    return Given(x, {} if read is None else read.projections, heads, task.causal, task.scaled)


def _heads(seen: Observation, sizes: Sizes) -> int:
    attributes = seen.contents.get("attributes", {})
    from regard.checking.building import HEADS

    own = [attributes[name] for name in HEADS if isinstance(attributes.get(name), int)]
    return int(own[0]) if own else sizes.num_heads


def _d_in(first: Observation, subject: Subject, sizes: Sizes, own: dict[str, Any]) -> int:
    return sizes.d_in
