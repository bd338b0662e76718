"""Values: the output of a learner's layer, with known weights, beside the formula and every known mistake in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import FINITE, LARGEST, MISTAKES, TOLERANCE, Variant, explanations_of_size, outputs, same
from regard.school.check.compare.call_forms import LAYOUTS, CallForm, call_forms, inputs, mask_argument, mask_forms
from regard.school.check.compare.constructor_arguments import (
    CONTEXT,
    HEADS,
    KV_HEADS,
    PROBES,
    ProbeSizes,
    choose_arguments,
    has_config,
    takes,
)
from regard.school.check.compare.input_norm import FirstNorm, find_norm
from regard.school.check.compare.parameters import Assignment, assignments
from regard.school.check.learner_code.subject import Failure, Observation, Subject

# How many ways to read the parameters are tried, the likeliest first, with no mistake, with one and with two.
READINGS = (60, 24, 2)
WRONG_SHAPE = "wrong shape"  # the type of a failure that is no exception
_LOW_PRECISION = 1e-4  # where a layer insists on float32


@dataclass(frozen=True)
class Request:
    """What is said beside the code: arguments, names of weights, and whether it should hide the future.

    A teacher can choose other sizes and weights than everybody knows: `probes`, `seed`.
    """

    causal: bool | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    probes: tuple[ProbeSizes, ...] = PROBES  # the first at which the layer can be built
    seed: int = 0  # added to that of every experiment
    mistakes: tuple[Mistake, ...] = ()  # a teacher's own, which are tried before the known ones


@dataclass(frozen=True)
class Reading:
    """One way to read the layer: its projections and its number of heads."""

    assignment: Assignment | None
    num_heads: int


@dataclass(frozen=True)
class Output:
    """An output of a layer; clear: without NaN, from a run in which infinities were replaced by large numbers."""

    way: CallForm
    out: Tensor
    clear: Tensor | None = None


@dataclass
class Experiment:
    """A layer beside the formula at one size. variants: the smallest explanations; None where there is none."""

    sizes: ProbeSizes
    observation: Observation
    built: dict[str, Any] | None = None  # arguments of the constructor
    shown: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    dtype: str = "float64"
    case: Case | None = None
    call: CallForm | None = None
    out: Tensor | None = None
    reading: Reading | None = None
    variants: list[Variant] | None = None
    failed: Failure | None = None
    problem: str = ""  # why it could not be compared
    norm: FirstNorm | None = None  # applied to x before it is projected
    extension: Any = None  # what it has beside the formula, an Extension
    guessed: tuple[str, ...] = ()  # arguments of the constructor whose names are not known

    def prepared(self, x: Tensor) -> Tensor:
        """x as the projections read it."""
        return x if self.norm is None else self.norm(x)

    @property
    def is_right(self) -> bool:
        """Is it the formula itself?"""
        return self.variants == [()]

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The explanations, by the names of their mistakes."""
        return [tuple(one.name for one in variant) for variant in self.variants or ()]

    def job(self, **changes: Any) -> dict[str, Any]:
        """A job for the driver: this layer, with these weights."""
        return {"build": self.built, "state": True, "dtype": self.dtype, **changes}


def known_weights(contents: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """Random values for every parameter, of a size that keeps the softmax from saturating."""
    generator = torch.Generator().manual_seed(seed)
    values = {}
    for p in contents.get("parameters", ()):
        shape = p["shape"]
        spread = 1.5 * max(1, max(shape)) ** -0.5 if len(shape) > 1 else 0.3
        values[p["name"]] = torch.randn(shape, dtype=torch.float64, generator=generator) * spread
    return {name: value for name, value in values.items() if not _is_mask(contents, name)}


def _is_mask(contents: Mapping[str, Any], name: str) -> bool:
    return any(p["name"] == name and p["is_mask"] for p in contents["parameters"])


def experiment(
    subject: Subject,
    sizes: ProbeSizes,
    seed: int,
    request: Request,
    *,
    square: bool = False,
    masked: bool = False,
    most: int = LARGEST,
) -> Experiment:
    """Build it at these sizes, put known weights in, run it, and explain what it gives by so many mistakes at most.

    square: with d_in = d_out. masked: with a mask passed.
    """
    built = None
    shown: dict[str, Any] = {}
    if not subject.is_built:
        chosen = choose_arguments(subject.described, sizes, square=square, own=request.own)
        if chosen.unknown:
            return Experiment(sizes, Observation({}, [], []), problem=unknown_arguments(chosen.unknown))
        built, shown = chosen.arguments, chosen.sizes
    first = subject.run({"build": built}, {})
    result = Experiment(sizes, first, built, shown, failed=first.failed)
    result.guessed = () if subject.is_built else chosen.guessed
    if first.failed is not None:
        return result
    weights = known_weights(first.contents, seed + request.seed)
    readings = list(_readings(subject, first, sizes, weights, request))
    if not readings:
        names = ", ".join(weights) or "none"
        result.problem = (
            f"which of its parameters are the projections? They are {names}. "
            "Say it: --names W_query=…,W_key=…,W_value=…,out_proj=…"
        )
        return result
    d_in = _input_width(readings, sizes, built, subject)
    readings = [one for one in readings if one.assignment is None or _reads(one, d_in)]
    generator = torch.Generator().manual_seed(seed + request.seed + 1)
    x = torch.randn(sizes.B, sizes.T, d_in, dtype=torch.float64, generator=generator)
    result.tensors = {**inputs(x), **{f"state.{name}": value for name, value in weights.items()}}
    plain = _explained(subject, result, readings, request, masked, most)
    norm = find_norm(first.contents, weights, d_in)
    if norm is None or plain.variants is not None or plain.case is None:
        return plain
    normed = _explained(subject, replace(result, norm=norm), readings, request, masked, most)
    return plain if normed.variants is None else normed


def unknown_arguments(names: Sequence[str]) -> str:
    """Why a class could not be built."""
    return f"its constructor takes {', '.join(names)}, and nothing is known of that; give a value: --set {names[0]}=…"


def _reads(reading: Reading, d_in: int) -> bool:
    assignment = reading.assignment
    return assignment is None or assignment.d_in == d_in or assignment.d_in * reading.num_heads == d_in


def _readings(
    subject: Subject, seen: Observation, sizes: ProbeSizes, weights: Mapping[str, Tensor], request: Request
) -> Iterator[Reading]:
    attributes = seen.contents.get("attributes", {})
    if not weights:
        yield Reading(None, 1)
        return
    kv_heads = sizes.kv_heads
    if subject.is_built or has_config(subject.described):
        kv_heads = next((attributes[n] for n in KV_HEADS if isinstance(attributes.get(n), int)), kv_heads)
    d_in = None if subject.is_built or not takes(subject.described, ("d_in",)) else sizes.d_in
    parameters = seen.contents["parameters"]
    for heads in _head_counts(subject, seen, sizes, request):
        for one in assignments(parameters, weights, heads, d_in, kv_heads, request.names):
            rows = len(one.projections["W_query"].weight)
            number = one.kv_heads if one.is_list and one.kv_heads else heads
            is_piece = one.d_in * number in (sizes.width, sizes.d_in) and not subject.is_built
            if rows and number and (rows % number == 0 or is_piece):
                yield Reading(one, number)


def _head_counts(subject: Subject, seen: Observation, sizes: ProbeSizes, request: Request) -> list[int]:
    """The number of heads: as built, as an attribute says, or all that divide the width."""
    attributes = seen.contents.get("attributes", {})
    own = [int(request.own[n]) for n in HEADS if n in request.own]
    if not subject.is_built and takes(subject.described, HEADS):
        return own or [sizes.num_heads]
    named = own or [attributes[n] for n in HEADS if type(attributes.get(n)) is int and attributes[n] > 0]
    if named:
        return [int(named[0])]
    name = subject.described["name"].lower()
    if not subject.is_built and not has_config(subject.described) and "multi" not in name:
        return [1]
    widest = max((max(p["shape"]) for p in seen.contents["parameters"] if len(p["shape"]) > 1), default=1)
    return [1, *(h for h in range(2, min(widest, 64) + 1) if widest % h == 0)]


def _input_width(readings: Sequence[Reading], sizes: ProbeSizes, built: dict[str, Any] | None, subject: Subject) -> int:
    """d_in: what the projections read."""
    first = readings[0].assignment
    if first is None:
        return sizes.d_in
    widths = (sizes.d_in, sizes.width) if built is not None else ()
    columns = {one.assignment.d_in for one in readings if one.assignment is not None}
    if not columns & set(widths):  # each head projects its own piece of x
        pieces = {c * one.num_heads for c in columns for one in readings}
        fitting = [width for width in widths if width in pieces and width % sizes.num_heads == 0]
        if fitting and not has_config(subject.described):
            return fitting[0]
    square = first.projections["W_query"].weight
    return sizes.d_in if built is not None and sizes.d_in in square.shape and first.d_in not in widths else first.d_in


def expects_causal(subject: Subject, seen: Observation, request: Request) -> bool | None:
    """Should it hide the future? None where nothing says so: then both are right."""
    if request.causal is not None:
        return request.causal
    described = subject.described
    name = described["name"].lower()
    attributes = seen.contents.get("attributes", {})
    for flag in ("causal", "is_causal"):
        if flag in attributes:
            return bool(attributes[flag])
    if any(word in name for word in ("bidirectional", "encoder", "cross", "unmasked", "vit", "bert")):
        return None
    if any(word in name for word in ("causal", "masked", "decoder", "gpt")):
        return True
    holders = [*seen.contents.get("buffers", ()), *seen.contents.get("loose", ()), *seen.contents.get("parameters", ())]
    if any(one["is_mask"] for one in holders):
        return True
    is_told = takes(described, CONTEXT) if not subject.is_built else any(n in attributes for n in CONTEXT[:4])
    return True if is_told and mask_argument(described) is None else None


def _explained(
    subject: Subject, result: Experiment, readings: Sequence[Reading], request: Request, masked: bool, most: int
) -> Experiment:
    """Run it in every way that it can be called, and look for the smallest explanation of any of the outputs."""
    sizes, x = result.sizes, result.tensors["x"]
    expected = expects_causal(subject, result.observation, request)
    visible = torch.ones(sizes.T, sizes.T, dtype=torch.bool).tril()
    forms = mask_forms(visible, torch.float64, sizes.B) if masked else {}
    ways = list(call_forms(subject.described, list(forms), LAYOUTS))
    result.tensors |= forms
    seen = _run(subject, result, ways)
    result.failed = seen.failure
    # Outputs of one layout belong to one input; each is compared with all cases of it.
    groups: list[tuple[Reading, Case, list[Output]]] = []
    finite = _run(subject, result, ways, finite=True) if _has_nan(seen) else None
    for layout in LAYOUTS:
        outs = [
            Output(way, out.to(torch.float64), _clear(finite, i, j, way, sizes))
            for i, (way, run) in enumerate(zip(ways, seen.runs, strict=True))
            if way.layout == layout and run.failed is None
            for j, out in enumerate(way.outputs(run.outputs, sizes.B, sizes.T))
        ]
        if not outs:
            continue
        for reading in readings:
            projections = {} if reading.assignment is None else reading.assignment.projections
            read = result.prepared(x)
            scaled = bool(projections) or not _is_simplified(subject, ways[0])
            case = Case(read[:1] if layout == "one text" else read, projections, reading.num_heads, scaled=scaled)
            if masked:
                groups.append((reading, replace(case, mask=visible), outs))
            else:
                groups += [
                    (reading, replace(case, causal=causal), outs)
                    for causal in ((True, False) if expected is None else (expected,))
                ]
    if not groups:
        if seen.failed is None and seen.runs[0].failed is None:
            result.failed = Failure(WRONG_SHAPE, _shapes(seen, sizes))
        return result
    result.failed = None
    tolerance = TOLERANCE if result.dtype == "float64" else _LOW_PRECISION
    return smallest_explanation(result, groups, tolerance, most, request.mistakes)


def _is_simplified(subject: Subject, way: CallForm) -> bool:
    """Is it, without weights, attention of x alone? Of q, k and v that come from elsewhere, scores are scaled."""
    return sum(isinstance(one, str) for one in way.args) == 1 and "scaled" not in subject.described["name"].lower()


def _has_nan(seen: Observation) -> bool:
    return any(t.is_floating_point() and bool(t.isnan().any()) for run in seen.runs for t in run.outputs)


def _clear(finite: Observation | None, i: int, j: int, way: CallForm, sizes: ProbeSizes) -> Tensor | None:
    if finite is None or i >= len(finite.runs):
        return None
    outs = way.outputs(finite.runs[i].outputs, sizes.B, sizes.T)
    return outs[j].to(torch.float64) if j < len(outs) and not bool(outs[j].isnan().any()) else None


def _run(subject: Subject, result: Experiment, ways: Sequence[CallForm], finite: bool = False) -> Observation:
    """Run it in float64, or in float32 where it insists on that."""
    calls = [way.as_json() for way in ways]
    seen = subject.run(result.job(calls=calls, finite=finite), result.tensors)
    failed = "" if seen.failure is None else seen.failure.message.lower()
    is_about_dtype = any(word in failed for word in ("dtype", "float", "double", "scalar type"))
    if is_about_dtype and all(run.failed or not run.outputs for run in seen.runs):
        again = subject.run(result.job(calls=calls, dtype="float32"), result.tensors)
        if any(not run.failed for run in again.runs):
            result.dtype = "float32"
            return again
    return seen


def smallest_explanation(
    result: Experiment,
    groups: Sequence[tuple[Reading, Case, list[Output]]],
    tolerance: float,
    most: int,
    own: Sequence[Mistake] = (),
) -> Experiment:
    """The experiment with the smallest explanation of any of its outputs."""
    for size in range(most + 1):
        for reading, case, outs in groups[: READINGS[size]]:
            mistakes = (*own, *distinguishable(reading))
            matches = explanations_of_size(case, [one.out for one in outs], size, tolerance, mistakes)
            matches = [(i, variant) for i, variant in matches if _is_clear(case, outs[i], variant, tolerance)]
            if matches:
                first = outs[matches[0][0]]
                variants = [variant for i, variant in matches if i == matches[0][0]]
                return replace(result, case=case, call=first.way, out=first.out, reading=reading, variants=variants)
    reading, case, outs = groups[0]
    return replace(result, case=case, call=outs[0].way, out=outs[0].out, reading=reading, variants=None)


def _is_clear(case: Case, output: Output, variant: Variant, tolerance: float) -> bool:
    """Where NaN hides most of an output: is the explanation that of the output without NaN, too?"""
    if not bool(output.out.isnan().any()):
        return True
    if output.clear is None:
        return not bool(output.out.isnan().all())
    return any(same(one, output.clear, tolerance) for one in outputs(case, variant, FINITE))


def distinguishable(reading: Reading) -> tuple[Mistake, ...]:
    """Mistakes that can be told apart: without names nobody knows which projection is which."""
    assignment = reading.assignment
    if assignment is None:
        return MISTAKES
    if not assignment.named:
        return tuple(m for m in MISTAKES if m.step != "project" or m.name == "embedding split before projection")
    return MISTAKES if assignment.is_linear else tuple(m for m in MISTAKES if m.name != "transposed weights")


def agrees_elsewhere(first: Experiment, other: Experiment) -> bool:
    """Does the second experiment have an explanation of the first one?"""
    factors = [one.case.factor for one in (first, other) if one.case is not None and one.case.factor is not None]
    if len(factors) == 2 and abs(factors[0] - factors[1]) > 1e-6:  # not a constant, then
        return False
    return bool(set(first.names) & set(other.names)) and (first.extension is None) == (other.extension is None)


def is_formula(result: Experiment, out: Tensor, case: Case) -> bool:
    """Is this output what the formula, with the layer's mistakes, gives for this case?"""
    variant = result.variants[0] if result.variants else ()
    return any(same(one, out.to(torch.float64), _LOW_PRECISION) for one in outputs(case, variant))


def _shapes(seen: Observation, sizes: ProbeSizes) -> str:
    outputs = [tuple(t.shape) for t in seen.runs[0].outputs][:2]
    if not outputs:
        return "It returns no tensor; return the output, or a tuple that starts with it."
    return (
        f"It returns {' and '.join(map(str, outputs))} for x of {sizes.B} texts and {sizes.T} tokens; "
        f"the output must be ({sizes.B}, {sizes.T}, width)."
    )
