"""Experiments: a learner's layer with known weights, beside the formula and every known mistake in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.mistake import Mistake, formula_with, written_in
from regard.mistakes.search import FINITE, LARGEST, TOLERANCE, Variant, explanations_of_size, outputs, same
from regard.school.check.compare import call_forms as calls
from regard.school.check.compare import constructor_arguments as arguments
from regard.school.check.compare.call_forms import CallForm, causal_mask
from regard.school.check.compare.constructor_arguments import Built, ProbeSizes
from regard.school.check.compare.parameters import Assignment, Norm, find_norm
from regard.school.check.compare.readings import input_width, readings_of
from regard.school.check.compare.recipes import LayerRecipe, find_recipe, is_searched, known_recipe
from regard.school.check.learner_code.protocol import DriverJob, Failure, ModuleContents, Observation
from regard.school.check.learner_code.subject import Subject, is_function, run_function
from regard.school.check.learner_code.text_hints import own_text
from regard.school.check.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from regard.school.check.compare.anatomy import Anatomy

# How many ways to read the parameters are tried, the likeliest first, with no mistake, with one and with two.
READINGS = (60, 12, 2)
WRONG_SHAPE = "wrong shape"  # the type of a failure that is no exception
_UNREAD = "which of its parameters are the projections?"
_LOW_PRECISION = 1e-4  # where a layer insists on float32


@dataclass(frozen=True)
class Output:
    """An output of a layer; clear: from a run in which infinities were replaced by large numbers, where it has NaN."""

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


@dataclass(kw_only=True)
class Attempt:
    """A layer at one size. It could not be built, called or compared, unless it is an Experiment."""

    subject: Subject
    request: Request
    sizes: ProbeSizes
    recipe: LayerRecipe = field(default_factory=LayerRecipe)
    built: Built = field(default_factory=Built)
    observation: Observation = field(default_factory=Observation)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    dtype: str = "float64"
    is_numpy: bool = False  # a function of arrays
    norm: Norm | None = None  # applied to x before it is projected
    failed: Failure | None = None
    problem: str = ""  # why it could not be compared
    unread: str = ""  # what could not be found in a run, where neither names nor numbers say what it computes
    variants: list[Variant] | None = None  # the smallest explanations; None where there is none

    @property
    def is_explained(self) -> bool:
        """Is it the formula, with mistakes that are known or without?"""
        return self.variants is not None

    @property
    def must_hide(self) -> bool | None:
        """Must it hide the future? None where nothing says so: then both are right."""
        return calls.expects_causal(self.subject, self.observation.contents, self.request)

    @property
    def text(self) -> str:
        """What the learner wrote of this class or function."""
        return own_text(self.subject.source, self.subject.described["name"])

    def mistakes(self, reading: Assignment) -> tuple[Mistake, ...]:
        """Those that its code can make, if its parameters are read so."""
        return written_in(self.subject.source, (*self.request.mistakes, *reading.mistakes))

    def prepared(self, x: Tensor) -> Tensor:
        """x as the projections read it."""
        return x if self.norm is None else self.norm(x)

    def inputs(self, x: Tensor, ways: Sequence[CallForm]) -> dict[str, Tensor]:
        """x in every layout, and what else these calls are given."""
        others = calls.other_inputs(x, self.sizes.head_dim)
        given = {name for way in ways for name in way.names}
        return {**calls.inputs(x), **{name: t for name, t in others.items() if name in given}}

    def job(self, **changes: Unpack[DriverJob]) -> DriverJob:
        """A job for the driver: this layer, with these weights."""
        return {"build": self.built.arguments, "state": True, "dtype": self.dtype, "numpy": self.is_numpy, **changes}


@dataclass(kw_only=True)
class Experiment(Attempt):
    """A layer beside the formula at one size."""

    case: Case
    call: CallForm
    out: Tensor
    reading: Assignment
    extension: Extension | None = None
    masked: Experiment | None = None  # called with a mask, where it takes one
    anatomy: Anatomy | None = None  # its parts, where they were found in a run

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

    @property
    def has_fixed_tokens(self) -> bool:
        """Is it built for so many tokens, as for the windows of an image?"""
        return self.recipe.is_square or "grid" in self.built.roles.values()

    @property
    def takes_qkv(self) -> bool:
        """Is it a function of queries, keys and values?"""
        return is_function(self.subject) and self.case.qkv is not None

    @property
    def cases(self) -> list[Case]:
        """The case; where nothing says whether it must hide the future, the other one, too."""
        is_told = self.must_hide is not None or self.case.mask is not None
        return [self.case] if is_told else [self.case, replace(self.case, causal=not self.case.causal)]

    @cached_property
    def seen(self) -> Observation:
        """One run of it, with its torch calls; of a function of arrays, those before a tensor fails."""
        seen = self.subject.run(self.job(record=True, calls=[self.call.as_json()]), self.tensors)
        is_tried = seen.failure is not None and is_function(self.subject)
        return replace(self.run(record=True), recorded=seen.recorded) if is_tried else seen

    def run(
        self, times: int = 1, tensors: Mapping[str, Tensor] | None = None, **changes: Unpack[DriverJob]
    ) -> Observation:
        """Call it again in the same way, so many times, each a new instance; or with other tensors."""
        changes.setdefault("calls", [{**self.call.as_json(), "fresh": True}] * times)
        tensors = tensors or {}
        others = self.inputs(tensors["x"], [self.call]) if "x" in tensors else {}
        job, given = self.job(**changes), {**self.tensors, **others, **tensors}
        is_numpy = is_function(self.subject) and not job.get("gradients")  # or may be
        return run_function(self.subject, job, given) if is_numpy else self.subject.run(job, given)

    def with_dropout(self, times: int, **changes: Unpack[DriverJob]) -> Observation:
        """The same with a dropout of 0.5."""
        built = self.built.arguments
        if built is not None:
            sizes = {
                name: value for name, value in built.items() if name not in arguments.DROPOUT and type(value) is int
            }
            chosen = self.recipe.choose(self.subject, self.request, self.sizes, dropout=0.5)
            built = {**(chosen.arguments or {}), **sizes}
        changes["build"], changes["dropout"], changes["seeds"] = built, 0.5, True
        return self.run(times, **changes)

    def outputs(self, seen: Observation, sizes: ProbeSizes | None = None) -> list[Tensor]:
        """The output of each call that did not fail."""
        sizes = sizes or self.sizes
        results = [self.call.outputs(run.outputs, sizes.B, sizes.T) for run in seen.runs if not run.failed]
        return [one[0] for one in results if one]

    def is_formula(self, out: Tensor, case: Case, tolerance: float = _LOW_PRECISION) -> bool:
        """Is this output what the formula, with the layer's mistakes, gives for this case?"""
        return any(same(one, out.to(torch.float64), tolerance) for one in outputs(case, self.first))


Group = tuple[Assignment, Case, list[Output]]  # outputs of one layout, and a case of its input


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
    attempt = partial(_attempt, subject, sizes, seed, request, square=square, masked=masked, most=most)
    result = attempt(known_recipe(subject))
    if (isinstance(result, Experiment) and not result.built.guessed) or is_searched(subject):
        return result
    result = attempt(find_recipe(subject, request))
    if isinstance(result, Experiment) or result.failed is None:
        return result
    if result.built.guessed:
        return replace(result, problem=request.ask_for_arguments(result.built.guessed))
    if not result.recipe.is_refused(result.failed, subject.source):
        return result
    return replace(result, problem=request.ask_for_others(result.failed, list(result.built.arguments or ())))


def _attempt(
    subject: Subject,
    sizes: ProbeSizes,
    seed: int,
    request: Request,
    recipe: LayerRecipe,
    *,
    square: bool,
    masked: bool,
    most: int,
) -> Attempt:
    """An experiment by this recipe."""
    result = Attempt(subject=subject, request=request, sizes=sizes, recipe=recipe)
    if not subject.is_built:
        result.built = built = recipe.choose(subject, request, sizes, square)
        if built.unknown:
            return replace(result, problem=request.ask_for_arguments(built.unknown))
        result.sizes = sizes = arguments.fit_sizes(sizes, request.own, built.roles)
    way = next(calls.call_forms(subject.described, [], recipe.layouts, recipe.choices[0]))
    x = calls.random_tensor(seed, sizes.B, sizes.T, sizes.width)
    job: DriverJob = {"build": result.built.arguments, "first": way.as_json()}
    first = result.observation = subject.run(job, result.inputs(x, [way]))
    if first.failed is not None:
        return replace(result, failed=first.failed)
    weights = known_weights(first.contents, seed + request.seed)
    readings = list(readings_of(result, weights)) if weights else [Assignment()]
    if not readings:
        ask = f"They are {', '.join(weights)}. Say it: {request.spelling.weights}"
        result.unread = f"{_UNREAD} {ask}"
        readings = [Assignment()]
    d_in = input_width(readings, result) if not result.unread else _width_by_trial(result, way, seed)
    readings = [one for one in readings if not one.projections or d_in in (one.d_in, one.d_in * one.num_heads)]
    x = calls.random_tensor(seed + request.seed + 1, sizes.B, sizes.T, d_in)
    result.tensors = {"x": x, **{f"state.{name}": value for name, value in weights.items()}}
    plain = _explained(result, readings, masked, most)
    if _is_misread(result, readings, plain, d_in) and (width := _width_by_trial(result, way, seed)) != d_in:
        result.tensors["x"] = calls.random_tensor(seed + request.seed + 1, sizes.B, sizes.T, width)
        return _explained(replace(result, failed=None, unread=_UNREAD), [Assignment()], masked, most)
    norm = find_norm(first.contents, weights, d_in)
    if norm is None or not isinstance(plain, Experiment) or plain.is_explained:
        return plain
    normed = _explained(replace(result, norm=norm), readings, masked, most)
    return normed if normed.is_explained else plain


def _is_misread(result: Attempt, readings: Sequence[Assignment], plain: Attempt, d_in: int) -> bool:
    """Does it fail with a width of x that only its weights seem to say?"""
    is_read = bool(readings and readings[0].projections) and d_in not in (result.sizes.d_in, result.sizes.width)
    return is_read and not result.subject.is_built and not isinstance(plain, Experiment)


def _width_by_trial(result: Attempt, way: CallForm, seed: int) -> int:
    """The width of x with which it runs, where its weights do not tell."""
    shapes = [n for p in result.observation.contents.get("parameters", ()) for n in p["shape"] if len(p["shape"]) > 1]
    for width in dict.fromkeys((result.sizes.d_in, result.sizes.width, *shapes)):
        x = calls.random_tensor(seed, result.sizes.B, result.sizes.T, width)
        job: DriverJob = {"build": result.built.arguments, "calls": [way.as_json()]}
        if result.subject.run(job, result.inputs(x, [way])).failure is None:
            return int(width)
    return result.sizes.d_in


def _explained(result: Attempt, readings: Sequence[Assignment], masked: bool, most: int) -> Attempt:
    """Run it in every way that it can be called, and look for the smallest explanation of any of the outputs."""
    sizes, described = result.sizes, result.subject.described
    forms = calls.mask_forms(causal_mask(sizes.T), torch.float64, sizes.B) if masked else {}
    ways = result.recipe.ways(described, list(forms))
    result.tensors |= {**result.inputs(result.tensors["x"], ways), **forms}
    seen = _run(result, ways)
    result.failed = seen.failure
    x, expected = result.prepared(result.tensors["x"]), result.must_hide
    # Without weights, and of x alone, scores are not scaled; of q, k and v that come from elsewhere they are.
    is_simplified = ways[0].texts == 1 and "scaled" not in described["name"].lower()
    groups: list[Group] = []
    for layout, outs in _outputs(result, ways, seen).items():
        for reading in readings:
            scaled = bool(reading.projections) or not is_simplified
            case = Case(x[:1] if layout == "one text" else x, reading.projections, reading.num_heads, scaled=scaled)
            cases = [replace(case, causal=causal) for causal in ((True, False) if expected is None else (expected,))]
            cases = [replace(case, mask=causal_mask(sizes.T))] if masked else cases
            groups += [(reading, one, outs) for one in cases]
    if groups:
        return smallest_explanation(result, groups, most)
    if seen.failed is None and seen.runs[0].failed is None:
        result.failed = Failure(WRONG_SHAPE, _shapes(seen, sizes))
    return result


def _outputs(result: Attempt, ways: Sequence[CallForm], seen: Observation) -> dict[str, list[Output]]:
    """The outputs by layout: those of one layout belong to one input; each is compared with all cases of it."""
    B, T = result.sizes.B, result.sizes.T
    has_nan = any(t.is_floating_point() and bool(t.isnan().any()) for run in seen.runs for t in run.outputs)
    finite = _run(result, ways, finite=True).runs if has_nan else []
    outs: dict[str, list[Output]] = {}
    for i, (way, run) in enumerate(zip(ways, seen.runs, strict=False)):
        given = way.outputs(run.outputs, B, T) if run.failed is None else []
        clear = way.outputs(finite[i].outputs, B, T) if i < len(finite) else []
        pairs = zip_longest(given, clear[: len(given)])
        outs.setdefault(way.layout, []).extend(Output(way, out.to(torch.float64), other) for out, other in pairs)
    return {layout: of_layout for layout, of_layout in outs.items() if of_layout}


def _run(result: Attempt, ways: Sequence[CallForm], finite: bool = False) -> Observation:
    """Run it in float64, or in float32 where it insists on that."""
    forms = [way.as_json() for way in ways]
    seen = result.subject.run(result.job(calls=forms, finite=finite), result.tensors)
    failed = "" if seen.failure is None else seen.failure.message.lower()
    is_about_dtype = any(word in failed for word in ("dtype", "float", "double", "scalar type"))
    if is_about_dtype and all(run.failed or not run.outputs for run in seen.runs):
        again = result.subject.run(result.job(calls=forms, dtype="float32"), result.tensors)
        if any(not run.failed for run in again.runs):
            result.dtype = "float32"
            return again
    return seen


def smallest_explanation(result: Attempt, groups: Sequence[Group], most: int = LARGEST) -> Experiment:
    """The experiment with the smallest explanation of any of its outputs."""
    tolerance = TOLERANCE if result.dtype == "float64" else _LOW_PRECISION

    def chosen(reading: Assignment, case: Case, output: Output, variants: list[Variant] | None) -> Experiment:
        known = {**vars(result), "failed": None, "variants": variants}
        return Experiment(**known, case=case, call=output.way, out=output.out, reading=reading)

    for size in range(most + 1):
        for reading, case, outs in groups[: READINGS[size]]:
            mistakes = result.mistakes(reading)
            matches = explanations_of_size(case, [one.out for one in outs], size, tolerance, mistakes)
            matches = [(i, variant) for i, variant in matches if _is_clear(case, outs[i], variant, tolerance)]
            matches = [(i, variant) for i, variant in matches if not variant or not _picks_one_key(case, variant)]
            if matches:
                first = matches[0][0]
                return chosen(reading, case, outs[first], [variant for i, variant in matches if i == first])
    reading, case, outs = groups[0]
    return chosen(reading, case, outs[0], None)


def _is_clear(case: Case, output: Output, variant: Variant, tolerance: float) -> bool:
    """Where NaN hides most of an output: is the explanation that of the output without NaN, too?"""
    if not bool(output.out.isnan().any()):
        return True
    is_all_nan = bool(output.out.isnan().all())
    if output.clear is None or (not is_all_nan and bool(output.clear.isnan().any())):
        return not is_all_nan
    return any(same(one, output.clear.to(torch.float64), tolerance) for one in outputs(case, variant, FINITE))


def _picks_one_key(case: Case, variant: Variant) -> bool:
    """Has every query one key only, so that many mistakes give the same? A token that sees only itself is another."""
    try:
        weights = formula_with(variant).steps(case)["weights"]
    except (RuntimeError, ValueError, KeyError):
        return False
    return bool((weights.amax(-1)[..., 1:] > 1 - 1e-6).all())


def _shapes(seen: Observation, sizes: ProbeSizes) -> str:
    shapes = " and ".join(str(tuple(t.shape)) for t in seen.runs[0].outputs[:2])
    if not shapes:
        return "It returns no tensor; return the output, or a tuple that starts with it."
    must = f"the output must be ({sizes.B}, {sizes.T}, width)"
    return f"It returns {shapes} for x of {sizes.B} texts and {sizes.T} tokens; {must}."
