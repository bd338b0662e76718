"""Experiments: a learner's layer with known weights, beside the formula and every known mistake in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case, Projection
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import FINITE, LARGEST, MISTAKES, TOLERANCE, Variant, explanations_of_size, outputs, same
from regard.school.check.compare.call_forms import (
    LAYOUTS,
    CallForm,
    call_forms,
    causal_mask,
    expects_causal,
    inputs,
    mask_forms,
)
from regard.school.check.compare.constructor_arguments import (
    HEADS,
    KV_HEADS,
    Built,
    ProbeSizes,
    choose_arguments,
    has_config,
    takes,
)
from regard.school.check.compare.parameters import Assignment, InputNorm, assignments, find_norm
from regard.school.check.learner_code.protocol import DriverJob, Failure, ModuleContents, Observation
from regard.school.check.learner_code.subject import Subject
from regard.school.check.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

# How many ways to read the parameters are tried, the likeliest first, with no mistake, with one and with two.
READINGS = (60, 24, 2)
WRONG_SHAPE = "wrong shape"  # the type of a failure that is no exception
_LOW_PRECISION = 1e-4  # where a layer insists on float32


@dataclass(frozen=True)
class Reading:
    """One way to read the layer: its projections and its number of heads."""

    assignment: Assignment | None
    num_heads: int

    @property
    def projections(self) -> Mapping[str, Projection]:
        """The projections; none of a function that takes q, k and v."""
        return {} if self.assignment is None else self.assignment.projections

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Mistakes that can be told apart: without names nobody knows which projection is which."""
        if self.assignment is None:
            return MISTAKES
        if not self.assignment.named:
            return tuple(m for m in MISTAKES if m.step != "project" or m.name == "embedding split before projection")
        return MISTAKES if self.assignment.is_linear else tuple(m for m in MISTAKES if m.name != "transposed weights")


@dataclass(frozen=True)
class Output:
    """An output of a layer; clear: without NaN, from a run in which infinities were replaced by large numbers."""

    way: CallForm
    out: Tensor
    clear: Tensor | None = None


@dataclass(frozen=True)
class Extension:
    """What a layer has beside the formula, and the case in which that is taken out of the question."""

    what: str  # a sentence for the learner
    case: Case
    out: Tensor  # what the formula must give in that case
    unknown: str = ""  # what cannot be known of it: then the layer is not checked; "" where everything is
    is_window: bool = False


@dataclass(kw_only=True)
class Attempt:
    """A layer at one size. It could not be built, called or compared, unless it is an Experiment."""

    sizes: ProbeSizes
    observation: Observation = field(default_factory=Observation)
    built: dict[str, Any] | None = None  # arguments of the constructor
    shown: dict[str, Any] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()  # arguments of the constructor whose names are not known
    tensors: dict[str, Tensor] = field(default_factory=dict)
    dtype: str = "float64"
    norm: InputNorm | None = None  # applied to x before it is projected
    failed: Failure | None = None
    problem: str = ""  # why it could not be compared

    @property
    def is_explained(self) -> bool:
        """Is it the formula, with mistakes that are known or without?"""
        return False

    def prepared(self, x: Tensor) -> Tensor:
        """x as the projections read it."""
        return x if self.norm is None else self.norm(x)

    def job(self, **changes: Unpack[DriverJob]) -> DriverJob:
        """A job for the driver: this layer, with these weights."""
        return {"build": self.built, "state": True, "dtype": self.dtype, **changes}


@dataclass(kw_only=True)
class Experiment(Attempt):
    """A layer beside the formula at one size. variants: the smallest explanations; None where there is none."""

    case: Case
    call: CallForm
    out: Tensor
    reading: Reading
    variants: list[Variant] | None = None
    extension: Extension | None = None

    @property
    def is_explained(self) -> bool:
        """Is it the formula, with mistakes that are known or without?"""
        return self.variants is not None

    @property
    def is_right(self) -> bool:
        """Is it the formula itself?"""
        return self.variants == [()]

    @property
    def first(self) -> Variant:
        """The first explanation; no mistake where there is none."""
        return self.variants[0] if self.variants else ()

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The explanations, by the names of their mistakes."""
        return [tuple(one.name for one in variant) for variant in self.variants or ()]

    def run(
        self,
        subject: Subject,
        tensors: Mapping[str, Tensor] | None = None,
        times: int = 1,
        **changes: Unpack[DriverJob],
    ) -> Observation:
        """Call the layer again in the same way; with other tensors, or so many times."""
        changes.setdefault("calls", [self.call.as_json()] * times)
        return subject.run(self.job(**changes), {**self.tensors, **(tensors or {})})

    def record(self, subject: Subject) -> Observation:
        """The torch calls of one run."""
        return self.run(subject, record=True)

    def is_formula(self, out: Tensor, case: Case) -> bool:
        """Is this output what the formula, with the layer's mistakes, gives for this case?"""
        return any(same(one, out.to(torch.float64), _LOW_PRECISION) for one in outputs(case, self.first))


Group = tuple[Reading, Case, list[Output]]  # outputs of one layout, and a case of its input


def known_weights(contents: ModuleContents, seed: int) -> dict[str, Tensor]:
    """Random values for every parameter that is no mask, of a size that keeps the softmax from saturating."""
    generator = torch.Generator().manual_seed(seed)
    parameters, values = contents.get("parameters", []), {}
    for p in parameters:
        shape = p["shape"]
        spread = 1.5 * max(1, max(shape)) ** -0.5 if len(shape) > 1 else 0.3
        values[p["name"]] = torch.randn(shape, dtype=torch.float64, generator=generator) * spread
    return {p["name"]: values[p["name"]] for p in parameters if not p["is_mask"]}


def experiment(
    subject: Subject,
    sizes: ProbeSizes,
    seed: int,
    request: Request,
    *,
    square: bool = False,
    masked: bool = False,
    most: int = LARGEST,
) -> Attempt:
    """Build it at these sizes, put known weights in, run it, and explain what it gives by so many mistakes at most.

    square: with d_in = d_out. masked: with a mask passed.
    """
    chosen = Built(None)
    if not subject.is_built:
        chosen = choose_arguments(subject.described, sizes, square=square, own=request.own)
        if chosen.unknown:
            return Attempt(sizes=sizes, problem=request.ask_for_arguments(chosen.unknown))
    built = chosen.arguments
    first = subject.run({"build": built}, {})
    result = Attempt(
        sizes=sizes, observation=first, built=built, shown=chosen.sizes, guessed=chosen.guessed, failed=first.failed
    )
    if first.failed is not None:
        return result
    weights = known_weights(first.contents, seed + request.seed)
    readings = list(_readings(subject, first.contents, sizes, weights, request))
    if not readings:
        names = ", ".join(weights) or "none"
        ask = f"They are {names}. Say it: {request.spelling.weights}"
        return replace(result, problem=f"which of its parameters are the projections? {ask}")
    d_in = _input_width(readings, sizes, built, subject)
    readings = [one for one in readings if _reads(one, d_in)]
    generator = torch.Generator().manual_seed(seed + request.seed + 1)
    x = torch.randn(sizes.B, sizes.T, d_in, dtype=torch.float64, generator=generator)
    result.tensors = {**inputs(x), **{f"state.{name}": value for name, value in weights.items()}}
    plain = _explained(subject, result, readings, request, masked, most)
    norm = find_norm(first.contents, weights, d_in)
    if norm is None or not isinstance(plain, Experiment) or plain.is_explained:
        return plain
    normed = _explained(subject, replace(result, norm=norm), readings, request, masked, most)
    return normed if normed.is_explained else plain


def _reads(reading: Reading, d_in: int) -> bool:
    assignment = reading.assignment
    return assignment is None or assignment.d_in == d_in or assignment.d_in * reading.num_heads == d_in


def _readings(
    subject: Subject, contents: ModuleContents, sizes: ProbeSizes, weights: Mapping[str, Tensor], request: Request
) -> Iterator[Reading]:
    if not weights:
        yield Reading(None, 1)
        return
    attributes: Mapping[str, Any] = contents["attributes"]
    kv_heads = sizes.kv_heads
    if subject.is_built or has_config(subject.described):
        kv_heads = next((attributes[n] for n in KV_HEADS if isinstance(attributes.get(n), int)), kv_heads)
    d_in = None if subject.is_built or not takes(subject.described, ("d_in",)) else sizes.d_in
    for heads in _head_counts(subject, contents, sizes, request):
        for one in assignments(contents["parameters"], weights, heads, d_in, kv_heads, request.names):
            rows = len(one.projections["W_query"].weight)
            number = one.kv_heads if one.is_list and one.kv_heads else heads
            is_piece = one.d_in * number in (sizes.width, sizes.d_in) and not subject.is_built
            if rows and number and (rows % number == 0 or is_piece):
                yield Reading(one, number)


def _head_counts(subject: Subject, contents: ModuleContents, sizes: ProbeSizes, request: Request) -> list[int]:
    """The number of heads: as built, as an attribute says, or all that divide the width."""
    attributes: Mapping[str, Any] = contents["attributes"]
    own = [int(request.own[n]) for n in HEADS if n in request.own]
    if not subject.is_built and takes(subject.described, HEADS):
        return own or [sizes.num_heads]
    named = own or [attributes[n] for n in HEADS if type(attributes.get(n)) is int and attributes[n] > 0]
    if named:
        return [int(named[0])]
    name = subject.described["name"].lower()
    if not subject.is_built and not has_config(subject.described) and "multi" not in name:
        return [1]
    widest = max((max(p["shape"]) for p in contents["parameters"] if len(p["shape"]) > 1), default=1)
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


def _explained(
    subject: Subject, result: Attempt, readings: Sequence[Reading], request: Request, masked: bool, most: int
) -> Attempt:
    """Run it in every way that it can be called, and look for the smallest explanation of any of the outputs."""
    sizes = result.sizes
    forms = mask_forms(causal_mask(sizes.T), torch.float64, sizes.B) if masked else {}
    ways = list(call_forms(subject.described, list(forms), LAYOUTS))
    result.tensors |= forms
    seen = _run(subject, result, ways)
    result.failed = seen.failure
    x, is_simplified = result.prepared(result.tensors["x"]), _is_simplified(subject, ways[0])
    expected = expects_causal(subject, result.observation.contents, request)
    groups: list[Group] = []
    for layout, outs in _outputs(subject, result, ways, seen).items():
        for reading in readings:
            scaled = bool(reading.projections) or not is_simplified
            case = Case(x[:1] if layout == "one text" else x, reading.projections, reading.num_heads, scaled=scaled)
            cases = [replace(case, causal=causal) for causal in ((True, False) if expected is None else (expected,))]
            groups += [
                (reading, one, outs) for one in ([replace(case, mask=causal_mask(sizes.T))] if masked else cases)
            ]
    if not groups:
        if seen.failed is None and seen.runs[0].failed is None:
            result.failed = Failure(WRONG_SHAPE, _shapes(seen, sizes))
        return result
    tolerance = TOLERANCE if result.dtype == "float64" else _LOW_PRECISION
    return smallest_explanation(result, groups, tolerance, most, request.mistakes)


def _outputs(subject: Subject, result: Attempt, ways: Sequence[CallForm], seen: Observation) -> dict[str, list[Output]]:
    """The outputs by layout: those of one layout belong to one input; each is compared with all cases of it."""
    sizes = result.sizes
    has_nan = any(t.is_floating_point() and bool(t.isnan().any()) for run in seen.runs for t in run.outputs)
    finite = _run(subject, result, ways, finite=True) if has_nan else None
    outs: dict[str, list[Output]] = {}
    for i, (way, run) in enumerate(zip(ways, seen.runs, strict=False)):
        for j, out in enumerate(way.outputs(run.outputs, sizes.B, sizes.T) if run.failed is None else ()):
            clear = _clear(finite, i, j, way, sizes)
            outs.setdefault(way.layout, []).append(Output(way, out.to(torch.float64), clear))
    return outs


def _is_simplified(subject: Subject, way: CallForm) -> bool:
    """Is it, without weights, attention of x alone? Of q, k and v that come from elsewhere, scores are scaled."""
    return sum(isinstance(one, str) for one in way.args) == 1 and "scaled" not in subject.described["name"].lower()


def _clear(finite: Observation | None, i: int, j: int, way: CallForm, sizes: ProbeSizes) -> Tensor | None:
    if finite is None or i >= len(finite.runs):
        return None
    outs = way.outputs(finite.runs[i].outputs, sizes.B, sizes.T)
    return outs[j].to(torch.float64) if j < len(outs) and not bool(outs[j].isnan().any()) else None


def _run(subject: Subject, result: Attempt, ways: Sequence[CallForm], finite: bool = False) -> Observation:
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
    result: Attempt, groups: Sequence[Group], tolerance: float, most: int, own: Sequence[Mistake] = ()
) -> Experiment:
    """The experiment with the smallest explanation of any of its outputs."""

    def chosen(reading: Reading, case: Case, output: Output, variants: list[Variant] | None) -> Experiment:
        known = {**vars(result), "failed": None}
        return Experiment(**known, case=case, call=output.way, out=output.out, reading=reading, variants=variants)

    for size in range(most + 1):
        for reading, case, outs in groups[: READINGS[size]]:
            mistakes = (*own, *reading.mistakes)
            matches = explanations_of_size(case, [one.out for one in outs], size, tolerance, mistakes)
            matches = [(i, variant) for i, variant in matches if _is_clear(case, outs[i], variant, tolerance)]
            if matches:
                first = matches[0][0]
                return chosen(reading, case, outs[first], [variant for i, variant in matches if i == first])
    reading, case, outs = groups[0]
    return chosen(reading, case, outs[0], None)


def _is_clear(case: Case, output: Output, variant: Variant, tolerance: float) -> bool:
    """Where NaN hides most of an output: is the explanation that of the output without NaN, too?"""
    if not bool(output.out.isnan().any()):
        return True
    if output.clear is None:
        return not bool(output.out.isnan().all())
    return any(same(one, output.clear, tolerance) for one in outputs(case, variant, FINITE))


def _shapes(seen: Observation, sizes: ProbeSizes) -> str:
    outputs = [tuple(t.shape) for t in seen.runs[0].outputs][:2]
    if not outputs:
        return "It returns no tensor; return the output, or a tuple that starts with it."
    return (
        f"It returns {' and '.join(map(str, outputs))} for x of {sizes.B} texts and {sizes.T} tokens; "
        f"the output must be ({sizes.B}, {sizes.T}, width)."
    )
