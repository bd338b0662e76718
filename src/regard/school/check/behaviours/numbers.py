"""Numbers: large scores, float32, and other dtypes. What is right in exact numbers may overflow, leak or not run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.search import same
from regard.school.check.behaviours.callers_tensors import with_and_without_mask
from regard.school.check.behaviours.gradients import is_of_arrays, raw_output
from regard.school.check.behaviours.probing import Probe, one_line, text
from regard.school.check.behaviours.registry import NotChecked, behaviour
from regard.school.check.behaviours.sizes import case_of, is_formula_of
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with, return_line, softmax_line, steps_of
from regard.school.check.learner_code.protocol import Observation
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import with_header
from regard.school.check.verdict import Finding, known

OVERFLOWS = known(
    "softmax overflows",
    "exp(100) has no place in float32. Subtracting the largest score first changes nothing, and keeps every "
    "exponential at most 1.",
    "weights = torch.softmax(scores, dim=-1)  # or exp(scores - scores.amax(dim=-1, keepdim=True))",
    "weights",
)
VANISHES = known(
    "softmax underflows",
    "Where the largest score of all rows is subtracted, a row far below it is exp(−1000) = 0 everywhere, and 0 / 0.",
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
_OVERFLOW = (
    "−1e9 overflows in fp16",
    "−∞ exists in every floating-point type, and its exponential is exactly 0.",
    "scores = scores.masked_fill(future, -torch.inf)",
    "mask",
)
OVERFLOW, OVERFLOW_TOLD = known(*_OVERFLOW, is_warning=True), known(*_OVERFLOW)
OTHER_DTYPE = known(
    "output has another dtype",
    "What comes next has weights of the dtype of x, and fails with another.",
    "return out.to(x.dtype)  # after what is computed in float32",
)
# Where a docstring promises a dtype, and where it does the opposite.
_PROMISED = {
    "float16": r"(?i)(?<!b)float16|fp16|half[- ]precision|\.half\(|\bhalf(?=(,| or| and) b?float|[- ](inputs|tensors))",
    "bfloat16": r"(?i)bfloat16|bf16|\b(same|any|every|all|each) (floating([- ]point)? )?(data ?|d)types?\b|"
    r"\bdtype of\b|'s dtype\b",
}
_DENIED = (
    r"(?i)\b(not|never|no|only|except|unless|avoid\w*|overflow\w*|autocast|mixed)\b|n't\b|"
    r"(return|output|give)\w* float32"
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
    x = _large_text(result)
    exact, single = _in_both(result, x)
    outs = [out for out in (exact, single) if out is not None]
    if not outs:
        raise NotChecked("it fails with another text")
    if any(not bool(out.isfinite().all()) for out in outs):
        probe = Probe(result)
        probe.add(x)
        probe.run(dtype="float32", record=True)
        yield _not_finite(result, case_of(result, x), outs, probe.seen)
    elif is_formula_of(result) and exact is not None and not result.is_formula(exact, case_of(result, x), 1e-3):
        says = f"Where scores are as large as ±{SCORES:.0f}, it computes something else."
        yield LARGE.found(says, line_with(result.subject.source, r"clamp|clip|masked_fill|where\("))


def _large_text(result: Experiment) -> Tensor:
    """A text whose largest score is 1000, and of a key that is seen."""
    for seed in range(71, 91):
        x = text(result, seed, result.sizes.B, result.sizes.T)
        if not is_formula_of(result):
            return x * 20.0
        steps = steps_of(case_of(result, x), ())
        largest = steps["scaled"].abs().max()
        if bool((steps["scaled"].masked_fill(~steps["mask"], 0) == largest).any()):
            break
    return x * math.sqrt(SCORES / float(largest))


def _large_scores_of_function(result: Experiment) -> Iterator[Finding]:
    """The same for a function: its queries, or its text, are large."""
    names = [name for name in result.call.names if name.partition(",")[0] in ("q", "x")]
    large = {name: result.tensors[name] * _LARGE_FACTOR for name in names}
    seen = result.run(1, large, record=True)
    outs = result.outputs(seen)
    if not outs or not large:
        raise NotChecked("it fails with another text")
    if not bool(outs[0].isfinite().all()):
        case = result.case
        qkv = case.qkv and (case.qkv[0] * _LARGE_FACTOR, *case.qkv[1:])
        yield _not_finite(result, replace(case, x=case.x * _LARGE_FACTOR, qkv=qkv), outs, seen)


def _not_finite(result: Experiment, case: Case, outs: list[Tensor], seen: Observation) -> Finding:
    """Why large scores give NaN: an exponential overflows, or a row divides 0 by 0.

    A softmax that is masked afterwards leaves nothing where a hidden score wins: that is not judged.
    """
    values = [call.value for call in seen.forward if call.value.is_floating_point()]
    line = line_with(result.subject.source, _EXPONENTIAL) or softmax_line(result.seen)
    if any(bool((value == torch.inf).any()) for value in values):
        return OVERFLOWS.found(f"Where scores are as large as ±{SCORES:.0f}, the output has NaN or infinity.", line)
    is_fault = torch.full(outs[0].shape[:2], result.is_right and not _hides(result))
    if is_formula_of(result):
        steps = steps_of(case, ())
        best = steps["scaled"].masked_fill(~steps["mask"], -torch.inf).amax(-1)
        is_fault = ~(steps["scaled"].amax(-1) > best).any(1)  # (B, T): the best score is seen, in every head
    if any(bool((~out.isfinite()).any(-1)[is_fault].any()) for out in outs):
        fault = VANISHES if re.search(r"(?<!soft)max\(", result.text) else OVERFLOWS
        return fault.found("Where scores are large, the output has NaN or infinity.", line)
    raise NotChecked("it divides 0 by 0 where every weight that is left vanishes")


def _hides(result: Experiment) -> bool:
    """Is a key hidden from any query?"""
    cases = (result.case, result.case if result.extension is None else result.extension.case)
    return any(case.causal or case.mask is not None for case in cases)


@behaviour("float16", of_functions=True)
def promised_dtypes(result: Experiment) -> Iterator[Finding]:
    """−1e9 has no place in float16; where a docstring promises a dtype, it runs in it, and gives it back."""
    documented = with_header(result.subject.source, result.text)
    docstrings = "\n".join(documented.split('"""')[1::2]).splitlines()
    promises = "\n".join(line for line in docstrings if not re.search(_DENIED, line))
    told = [dtype for dtype, words in _PROMISED.items() if re.search(words, promises) and not is_of_arrays(result)]
    for one, dtype in product(with_and_without_mask(result), dict.fromkeys(("float16", *told))):
        seen = one.run(dtype=dtype)
        failed, is_told = seen.failure, dtype in told
        if failed is not None and "overflow" in failed.message:
            says = "In float16 it fails: the largest number there is 65504, and −1e9 does not fit."
            yield (OVERFLOW_TOLD if is_told else OVERFLOW).found(says, failed.line)
            return
        if not is_told:
            continue
        if failed is not None and failed.type != "NotImplementedError":
            yield DTYPES.found(f"In {dtype} it fails: {one_line(failed)}.", failed.line)
            return
        raw = raw_output(one)
        outs = [t.dtype for run in seen.runs for t in run.outputs if raw is not None and t.shape == raw.shape]
        if outs and outs[0] != getattr(torch, dtype):
            says = f"For x of {dtype} the output is of {str(outs[0]).removeprefix('torch.')}."
            yield OTHER_DTYPE.found(says, return_line(result.subject.source, result.seen.with_lines))
            return


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


def _in_both(result: Experiment, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The outputs in the dtype of the experiment, and in float32."""
    probe = Probe(result)
    probe.add(x)
    return probe.run()[0], probe.run(dtype="float32")[0]
