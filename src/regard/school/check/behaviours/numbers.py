"""Numbers: large scores, float32, and other dtypes. What is right in exact numbers may overflow, leak or not run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.behaviours.probing import Probe, one_line, text
from regard.school.check.behaviours.registry import NotChecked, behaviour
from regard.school.check.behaviours.sizes import case_of, is_formula_of
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with, softmax_line, steps_of
from regard.school.check.learner_code.subject import is_function
from regard.school.check.verdict import Finding, known

OVERFLOWS = known(
    "softmax overflows",
    "exp(100) has no place in float32. Subtracting the largest score first changes nothing, and keeps every "
    "exponential at most 1.",
    "weights = torch.softmax(scores, dim=-1)  # or exp(scores - scores.amax(dim=-1, keepdim=True))",
    "weights",
)
LARGE = known(
    "wrong for large scores",
    "Scores may be of any size: they are not clipped, and what is hidden is −∞, lower than any of them.",
    "scores = scores.masked_fill(future, -torch.inf)",
    "scores",
)
FLOAT32 = known("wrong in float32", "Layers are trained and used in float32 or less.")
DTYPES = known(
    "fails in other dtypes",
    "A model is moved to another dtype as a whole, such as to bfloat16: what forward makes must have the dtype of x.",
    "torch.zeros(B, T, T, dtype=x.dtype, device=x.device)  # or weights.to(v.dtype) after a softmax in float32",
)
SCORES = 1000.0  # the largest score of the probe
_ROUNDING = 5e-4  # of the largest number, in float32
_LARGE_FACTOR = 2000.0  # by which the queries of a function are multiplied
_EXPONENTIAL = r"\bexp\(|\.exp\("
_TO_FLOAT32 = (
    r"(\b\w+\b)\s*=\s*(\1\.(float\(\)|to\(\s*(dtype\s*=\s*)?torch\.float(32)?\b)|torch\.(as_)?tensor\(\s*\1\b)"
)


@behaviour("large scores", of_functions=True)
def large_scores(result: Experiment) -> Iterator[Finding]:
    """Scores of ±1000, at which a softmax by hand overflows and a mask of −10 leaks."""
    if is_function(result.subject):
        yield from _large_scores_of_function(result)
        return
    x = text(result, 71, result.sizes.B, result.sizes.T)
    factor = 20.0
    if is_formula_of(result):
        factor = (SCORES / float(steps_of(case_of(result, x), ())["scaled"].abs().max())) ** 0.5
    x = x * factor
    exact, single = _in_both(result, x)
    if exact is None and single is None:
        raise NotChecked("it fails with another text")
    if any(out is not None and not bool(out.isfinite().all()) for out in (exact, single)):
        if not _has_infinity(result, x):
            raise NotChecked("it divides 0 by 0 where every weight that is left vanishes")
        line = line_with(result.subject.source, _EXPONENTIAL) or softmax_line(result.seen)
        yield OVERFLOWS.found(f"Where scores are as large as ±{SCORES:.0f}, the output has NaN or infinity.", line)
        return
    if is_formula_of(result) and exact is not None and not result.is_formula(exact, case_of(result, x), 1e-3):
        says = f"Where scores are as large as ±{SCORES:.0f}, it computes something else."
        yield LARGE.found(says, line_with(result.subject.source, r"clamp|clip|masked_fill|where\("))


def _large_scores_of_function(result: Experiment) -> Iterator[Finding]:
    """The same for a function: its queries, or its text, are large."""
    names = [name for name in result.call.names if name.partition(",")[0] in ("q", "x")]
    large = {name: result.tensors[name] * _LARGE_FACTOR for name in names}
    seen = result.run(1, large)
    if seen.failure is not None or not large:
        raise NotChecked("it fails with another text")
    outs = [t for t in seen.runs[0].outputs if t.is_floating_point()]
    if outs and not bool(outs[0].isfinite().all()):
        says = "Where scores are large, the output has NaN or infinity."
        yield OVERFLOWS.found(says, line_with(result.subject.source, _EXPONENTIAL) or softmax_line(result.seen))


@behaviour("float32")
def float32(result: Experiment) -> Iterator[Finding]:
    """float32 gives what float64 gives, but for rounding."""
    if result.dtype == "float32":
        yield from _of_one_dtype(result)
        return
    exact, single = _in_both(result, text(result, 73, result.sizes.B, result.sizes.T))
    if exact is None:
        raise NotChecked("it fails with another text")
    if single is None or not same(single, exact, _ROUNDING):
        says = "In float32 it fails." if single is None else "In float32 it computes something else than in float64."
        yield FLOAT32.found(says)


def _of_one_dtype(result: Experiment) -> Iterator[Finding]:
    """A layer that runs in float32 only, unless it converts what it is given."""
    failed = result.run(dtype="float64").failure
    if failed is not None and not re.search(_TO_FLOAT32, result.text):
        yield DTYPES.found(f"In float64 it fails: {one_line(failed)}.", failed.line)


def _has_infinity(result: Experiment, x: Tensor) -> bool:
    """Is a number on the way too large for float32?"""
    probe = Probe(result)
    probe.add(x)
    probe.run(dtype="float32", record=True)
    values = [call.value for call in probe.seen.forward if call.value.is_floating_point()]
    return not values or any(bool((value == torch.inf).any()) for value in values)


def _in_both(result: Experiment, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The outputs in the dtype of the experiment, and in float32."""
    probe = Probe(result)
    probe.add(x)
    return probe.run()[0], probe.run(dtype="float32")[0]
