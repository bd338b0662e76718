"""Gradients: they reach x and every weight, and are those of what the layer computes.

The slope of the output along a random direction of each tensor is measured by two calls, and compared with autograd's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.school.check.behaviours.probing import one_line, with_tensors
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.compare.call_forms import random_tensor
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.protocol import CallJob, ModuleContents, Observation
from regard.school.check.verdict import Finding, known

_WHY = (
    "What is detached, made under no_grad, or passed through NumPy or a Python number has no history to go back along."
)
_FIX = "# stay with torch: no .detach(), .data, .item(), .numpy() or torch.tensor(x) on the way to the output"
NOT_TO_WEIGHTS = known("gradient does not reach the weights", _WHY, _FIX)
NOT_TO_INPUT = known("gradient does not reach x", f"{_WHY} The layers before this one would never learn.", _FIX)
WRONG = known("wrong gradient", _WHY, _FIX)
FAILS = known("gradient fails", "A layer that cannot be trained is of use for inference only.")
UNUSED = known("wrong parameter count", "They are saved, moved and counted, and never trained.")
_CUTS = r"no_grad|inference_mode|\.detach\(|\.data\b|\.numpy\(|\.item\(|\.tolist\(|torch\.tensor\(\w+[,)]|requires_grad"
# Who freezes weights to train others beside them says so.
_FREEZES = r"(?i)lora|adapter|low.?rank|fr[eo]e?z|pre.?train|fine.?tun"
_MEANT = r"(?i)stop.?grad|frozen|freeze|straight.?through|momentum|\bema\b|teacher|target|quanti|no.?gradient|inference"
_IS_BIAS = re.compile(r"(?i)bias|norm|\bln|beta|gamma|(^|[._])b(_?[qkvo])?$").search
_IS_PACKED, _THIRDS = (
    re.compile(r"(?i)qkv|in_(proj|weight|bias)|c_attn|packed|fused").search,
    ("first", "second", "last"),
)
_IS_NORM = re.compile(r"(?i)(norm|\bln)\w*\.(weight|gamma|scale)$").search
_MOST = 40  # tensors along which the output is tried
_STEPS = {"float64": 1e-3, "float32": 1e-2}
_SHARE = 0.03  # by which both slopes may differ: layers compute some steps in float32


@dataclass(frozen=True)
class Slope:
    """How the output changes along a direction of one tensor: as two calls show it, and by autograd."""

    name: str
    seen: float
    autograd: float


@behaviour("gradients", of_functions=True)
def gradients(result: Experiment) -> Iterator[Finding]:
    """Do gradients reach x and every weight, and are they right?"""
    raw = raw_output(result)
    if raw is None or is_of_arrays(result):
        raise NotOffered
    if bool(raw.isnan().any()):
        raise NotChecked("the output has NaN")
    tensors = {"cotangent": random_tensor(11, *raw.shape)}
    asked = result.run(1, tensors, gradients=True)
    if asked.failure is not None:
        says = f"When gradients are computed, it fails: {one_line(asked.failure)}."
        yield FAILS.found(says, asked.failure.line)
        return
    if not asked.gradients and re.search(r"(?i)inference|no grad", result.text):
        raise NotChecked("it is for inference only")
    slopes = list(_slopes(result, asked, tensors["cotangent"]))
    if not slopes:
        raise NotChecked("it fails with other numbers")
    largest = max(abs(one.seen) for one in slopes)
    wrong = [one for one in slopes if _differ(one, largest)]
    if not wrong:
        return
    lost = [one.name for one in wrong if one.name not in asked.gradients]
    line = line_with(result.subject.source, _CUTS)
    weights = [name.removeprefix("state.") for name in lost if name.startswith("state.")]
    if weights:
        yield NOT_TO_WEIGHTS.found(f"No gradient reaches {', '.join(weights[:4])}: they would never learn.", line)
    elif lost:
        yield NOT_TO_INPUT.found("No gradient reaches the input of the layer.", line)
    else:
        one = max(wrong, key=lambda one: abs(one.seen - one.autograd))
        name = one.name.removeprefix("state.").partition(",")[0]
        says = f"Along {name} the output changes by {one.seen:.3g}, and its gradient says {one.autograd:.3g}."
        yield WRONG.found(says, line)


def is_of_arrays(result: Experiment) -> bool:
    """Does it compute with NumPy, so that nothing of torch can be asked of it?"""
    is_plain = result.is_numpy or result.observation.contents.get("attributes", {}).get("is_numpy")
    return bool(is_plain) or not re.search(
        r"\btorch\.\w|(import|from) torch\b", result.subject.source or "import torch"
    )


@behaviour("gradients")
def lost_gradients(result: Experiment) -> Iterator[Finding]:
    """Of a layer that nothing explains: weights that are to be trained, change the output, and get no gradient."""
    raw = raw_output(result)
    if raw is None or bool(raw.isnan().any()) or not re.search(_CUTS, result.text) or re.search(_MEANT, result.text):
        raise NotOffered
    tensors = {"cotangent": random_tensor(11, *raw.shape)}
    asked = result.run(1, tensors, gradients=True)
    still = asked.contents.get("without_gradient", ())
    first, again = (
        {one.name: one for one in _slopes(result, asked, tensors["cotangent"], part)} for part in (1.0, 0.5)
    )
    largest = max((abs(one.seen) for one in first.values()), default=0.0)
    lost = [n for n, one in first.items() if n in still and n in again and _differ(one, largest)]
    lost = [n for n in lost if abs(first[n].seen - again[n].seen) <= _SHARE * abs(first[n].seen)]  # no jump
    if asked.failure is None and asked.gradients and lost:
        names = ", ".join(name.removeprefix("state.") for name in lost[:4])
        line = line_with(result.subject.source, _CUTS)
        yield NOT_TO_WEIGHTS.found(f"No gradient reaches {names}: they would never learn.", line)


def raw_output(result: Experiment) -> Tensor | None:
    """The output as the layer returns it, in its own layout."""
    runs, sizes, width = result.seen.runs, result.sizes, result.out.shape[-1]
    for t in runs[0].outputs if runs and runs[0].failed is None else ():
        found = result.call.outputs([t], sizes.B, sizes.T)
        if found and found[0].shape[-1] == width:
            return t
    return None


def _slopes(result: Experiment, asked: Observation, cotangent: Tensor, part: float = 1.0) -> Iterator[Slope]:
    """The slopes along x, every weight that is trained, and every weight that is read as a projection.

    part: of the usual step.
    """
    step, call = part * _STEPS.get(result.dtype, 1e-2), result.call.as_json()
    moved = {name: random_tensor(100 + i, *result.tensors[name].shape) for i, name in enumerate(_names(result, asked))}
    tensors: dict[str, Tensor] = {}
    calls: list[CallJob] = [{**call, "fresh": True}]  # the first instance is made without other weights
    for name, direction in moved.items():
        for sign in (1, -1):
            other = f"{name}, moved by {sign}"
            tensors[other] = result.tensors[name].to(torch.float64) + sign * step * direction
            state = {name.removeprefix("state."): other}
            args = [with_tensors(one, {name: other}) for one in call["args"]]
            kwargs = {n: with_tensors(one, {name: other}) for n, one in call["kwargs"].items()}
            calls.append({"args": args, "kwargs": kwargs, "fresh": True, "state": state})
    totals = [_total(run.outputs, cotangent) for run in result.run(1, tensors, calls=calls).runs[1:]]
    for (name, direction), ahead, behind in zip(moved.items(), totals[::2], totals[1::2], strict=False):
        gradient = asked.gradients.get(name, torch.zeros_like(direction))
        if ahead is not None and behind is not None and gradient.shape == direction.shape:
            slope = float((gradient.to(torch.float64) * direction).sum())
            yield Slope(name, (ahead - behind) / (2 * step), slope)


def _names(result: Experiment, asked: Observation) -> list[str]:
    """The names of the tensors along which the output is tried."""
    trained = [*asked.gradients, *asked.contents.get("without_gradient", ())]
    if not re.search(_FREEZES, result.text):
        trained += [f"state.{name}" for name in sorted(result.reading.used)]
    names = [name for name in dict.fromkeys(trained) if name in result.tensors]
    return [name for name in names if name != result.call.mask][:_MOST]


def _total(outputs: list[Tensor], cotangent: Tensor) -> float | None:
    out = next((t for t in outputs if t.shape == cotangent.shape), None)
    return None if out is None else float((out.to(torch.float64) * cotangent).sum())


def _differ(one: Slope, largest: float) -> bool:
    most = _SHARE * max(abs(one.seen), abs(one.autograd)) + 1e-3 * largest
    return not abs(one.seen - one.autograd) <= most


def _unused_parts(result: Experiment, asked: Observation) -> Iterator[Finding]:
    """A third of a packed weight or bias, such as that of the values, that changes nothing."""
    for name, gradient in asked.gradients.items():
        if not name.startswith("state.") or len(gradient) % 3 or not _IS_PACKED(name):
            continue
        parts = [bool(part.any()) for part in gradient.chunk(3)]
        if not all(parts) and (len(gradient) == 3 or gradient.shape[0] >= 3 * result.case.num_heads):
            which = " and ".join(word for word, is_used in zip(_THIRDS, parts, strict=True) if not is_used)
            says = f"The {which} third of {name.removeprefix('state.')} changes nothing."
            yield UNUSED.found(says, line_with(result.subject.source, rf"{re.escape(name.rpartition('.')[2])}"))
            return


@behaviour("parameters")
def unused_parameters(result: Experiment) -> Iterator[Finding]:
    """Weights that change nothing; of those that are read, a mistake in the values has told already."""
    raw = raw_output(result)
    if raw is None:
        raise NotOffered
    asked = result.run(1, {"cotangent": random_tensor(11, *raw.shape)}, gradients=True)
    yield from _unused_parts(result, asked)
    contents = asked.contents
    if result.reading.projections:
        yield from _unused_weights(result, contents)
    if idle := [n for n in contents.get("without_gradient", ()) if _IS_NORM(n)]:
        raise NotChecked(f"{idle[0].removeprefix('state.')} changes nothing: a norm that is made and not used")
    if not result.reading.projections:
        raise NotOffered


def _unused_weights(result: Experiment, contents: ModuleContents) -> Iterator[Finding]:
    shapes = {p["name"]: p["shape"] for p in contents.get("parameters", ())}
    still = [name.removeprefix("state.") for name in contents.get("without_gradient", ())]
    others = [n for n in still if n in shapes and n not in result.reading.used]
    unused = [n for n in others if len(shapes[n]) > 1 or not _IS_BIAS(n)]
    if unused:
        listed = ", ".join(f"{n} ({' × '.join(map(str, shapes[n]))})" for n in unused[:4])
        line = line_with(result.subject.source, rf"self\.{re.escape(unused[0].split('.')[0])}\s*=")
        yield UNUSED.found(f"The layer has weights that change nothing: {listed}.", line)
