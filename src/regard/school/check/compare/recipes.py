"""Recipes: how a layer can be built and called where names do not say it; found by trial, and confirmed elsewhere.

Roles for the arguments of the constructor and values for those of forward are tried in order of likelihood, in one
process: the first that builds, runs and returns (B, T, width), at these sizes and at others, is the recipe.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from regard.school.check.compare.call_forms import (
    LAYOUTS,
    MORE_LAYOUTS,
    CallForm,
    call_forms,
    choices_of_values,
    inputs,
    other_inputs,
    random_tensor,
)
from regard.school.check.compare.constructor_arguments import (
    KEEP,
    ROLES,
    Built,
    ProbeSizes,
    Setting,
    choose_arguments,
    fit_sizes,
    guess_role,
    settings_of,
)
from regard.school.check.learner_code.protocol import Description, Failure, TrialJob, TrialReport
from regard.school.check.learner_code.subject import Subject
from regard.school.check.learner_code.text_hints import mask_shows, own_text
from regard.school.check.request import Request
from regard.support import vocabulary as words

# Pairs of sizes: the first that anything runs at is confirmed at the second. d_in = d_out, and even heads.
_EVEN = (
    ProbeSizes(d_in=32, num_heads=4, head_dim=8, kv_heads=2),
    ProbeSizes(d_in=8, num_heads=2, head_dim=4, context_length=13, B=3, T=7, kv_heads=1),
)
_SQUARE = (
    ProbeSizes(d_in=64, num_heads=4, head_dim=16, context_length=19, T=16),
    ProbeSizes(d_in=32, num_heads=2, head_dim=16, context_length=67, B=3, T=64),
)
_MOST_BUILT, _MOST_CALLS, _MOST_CONFIRMED = 150, 500, 24
# What an argument of an unknown name may be, with what it costs to think so; 6 more where another argument is that.
_COSTS = {
    "d_model": 0,
    "head_dim": 1,
    "num_heads": 2,
    "context_length": 3,
    "num_kv_heads": 4,
    "dropout": 4,
    "two": 5,
    "one": 5,
    "bias": 5,
    "grid": 6,
    "none": 6,
    "config": 7,
}
_ANOTHER, _NOT_ITS_NAME, _DEFAULT = 6, 9, 4
_AMBIGUOUS = {*words.WIDTH_TOO, *words.HEADS_TOO, *words.KV_HEADS_TOO, *words.HEAD_DIM_TOO, *words.CONTEXT_TOO}
# Exceptions that no argument causes; % the name of the class.
_OWN = (
    r"NameError|UnboundLocalError|ImportError|cuda|CUDA|'%s' object has no|__init__\(\) call|view size is not|"
    r"takes \d+ positional"
)


@dataclass(frozen=True)
class LayerRecipe:
    """Roles of arguments, by key; the layouts of x and the values of other arguments with which forward runs."""

    roles: Mapping[str, str] = field(default_factory=dict)
    layouts: tuple[str, ...] = LAYOUTS
    choices: tuple[Mapping[str, Any], ...] = ({},)  # the first, and others that differ in what a mask means by True
    is_confirmed: bool = False  # it ran at two sizes
    is_square: bool = False  # it ran only where the tokens are a square, a power of two and all that it takes
    failure: Failure | None = None  # that no argument can cause

    def choose(
        self, subject: Subject, request: Request, sizes: ProbeSizes, square: bool = False, dropout: float = 0.0
    ) -> Built:
        """The arguments of the constructor; roles that nothing confirmed are guesses."""
        choose = partial(
            choose_arguments, subject.described, sizes, dropout, square, request.own, source=subject.source
        )
        built = choose(roles=self.roles)
        if self.is_confirmed or self.failure is not None or not self.roles:
            return built
        by_name = choose()
        return replace(built, guessed=(*by_name.unknown, *by_name.guessed))

    def ways(self, described: Description, masks: Sequence[str]) -> list[CallForm]:
        """Ways to call it: without a mask, or with each of these forms of it."""
        choices = self.choices[:1] if masks else self.choices
        return [way for one in choices for way in call_forms(described, masks, self.layouts, one)]

    def is_refused(self, failed: Failure, source: str) -> bool:
        """Did it never run, because of an exception that it raises itself, or because of arguments that are missing?"""
        if self.is_confirmed or self.failure is not None:
            return False
        if failed.line == 0:
            return failed.type == "TypeError" and "argument" in failed.message
        lines = source.splitlines()
        return failed.line <= len(lines) and bool(re.match(r"\s*(assert|raise)\b", lines[failed.line - 1]))


_found: WeakKeyDictionary[Subject, LayerRecipe] = WeakKeyDictionary()


def known_recipe(subject: Subject) -> LayerRecipe:
    """The recipe that was found for a layer; until one is sought, what names say."""
    return _found.get(subject, LayerRecipe())


def is_searched(subject: Subject) -> bool:
    """Was a recipe sought for it?"""
    return subject in _found


def find_recipe(subject: Subject, request: Request) -> LayerRecipe:
    """How a layer can be built and called; what names say where no trial is better."""
    if subject not in _found:
        _found[subject] = _Search(subject, request).recipe()
    return _found[subject]


@dataclass(frozen=True)
class _Trial:
    """Roles, and ways to call; what came of them."""

    roles: Mapping[str, str]
    ways: Sequence[tuple[Mapping[str, Any], CallForm]] = ()
    report: TrialReport = field(default_factory=lambda: TrialReport(runs=[]))

    def good(self, sizes: ProbeSizes) -> list[int]:
        """The numbers of the calls that gave (B, T, width)."""
        return [
            number
            for number, (run, (_, way)) in enumerate(zip(self.report["runs"], self.ways, strict=False))
            if way.outputs([torch.empty(shape, device="meta") for shape in run["shapes"]], sizes.B, sizes.T)
        ]

    def running(self, _: ProbeSizes) -> list[int]:
        """The numbers of the calls that did not fail."""
        return [number for number, run in enumerate(self.report["runs"]) if "failed" not in run]


class _Search:
    """Trials with a layer, until it runs; what ran less well, and what failed."""

    def __init__(self, subject: Subject, request: Request) -> None:
        self.subject, self.request, self.name = subject, request, subject.described["name"]
        settings = [] if subject.is_built else settings_of(subject.described, subject.source)
        self.candidates = [_Trial(one) for one in _candidates(settings, request.own, subject.source)]
        self.by_name = {one.key: one.role or KEEP for one in settings if one.role or not one.required}
        self.shows = mask_shows(own_text(subject.source, self.name))
        self.ran: list[LayerRecipe] = []
        self.failed: list[_Trial] = []

    def recipe(self) -> LayerRecipe:
        """The first recipe that gives (B, T, width); else one that runs; else the likeliest."""
        for sizes in (_EVEN, _SQUARE):
            trials = _run(self.candidates, self.subject, self.request, sizes[0])
            self.failed += trials
            built = [one for one in trials if "failed" not in one.report]
            for layouts in (LAYOUTS, MORE_LAYOUTS):
                if found := self._found(self._called(built, layouts, sizes[0]), sizes):
                    return found
        called = [one for one in self.failed if "failed" not in one.report]
        never = LayerRecipe((called or self.failed)[0].roles if self.failed else {})
        return next(iter(self.ran), None) or _with_own_failure((*called, *self.failed), self.name) or never

    def _called(self, built: Sequence[_Trial], layouts: Sequence[str], sizes: ProbeSizes) -> list[_Trial]:
        """The trials that could be built, called; only the first of them where names say everything and it runs."""
        ways = _ways(self.subject, layouts)
        some = [replace(one, ways=ways) for one in built[: max(1, _MOST_CALLS // len(ways))]]
        called = _run(some, self.subject, self.request, sizes)
        self.failed += called
        return called[:1] if called and self._is_by_name(called[0]) and called[0].running(sizes) else called

    def _is_by_name(self, trial: _Trial) -> bool:
        return trial.roles == self.by_name

    def _found(self, called: Sequence[_Trial], sizes: tuple[ProbeSizes, ProbeSizes]) -> LayerRecipe | None:
        is_by_name = bool(called) and self._is_by_name(called[0])
        if is_by_name and (own := _with_own_failure(called[:1], self.name)):
            return own
        for is_good in (_Trial.good, _Trial.running):
            good = [replace(one, ways=[one.ways[i]]) for one in called for i in is_good(one, sizes[0])]
            again = _run(good[:_MOST_CONFIRMED], self.subject, self.request, sizes[1])
            if again := [one for one in again if is_good(one, sizes[1])]:
                if own := self._failure_of_several_heads(again[0].roles, called):  # which one head hides
                    return own
                self.ran.append(_recipe(again, sizes is _SQUARE, self.shows))
                if is_good is _Trial.good or (is_by_name and len(called) == 1):
                    return _with_heads(self.ran[-1], again[0], self.subject, self.request)
        return None

    def _failure_of_several_heads(self, roles: Mapping[str, str], called: Sequence[_Trial]) -> LayerRecipe | None:
        """Where it runs with 1 for an argument of an unknown name: its own failure if that is a number of heads."""
        several = {key: "num_heads" if role == "one" else role for key, role in roles.items()}
        alike = [one for one in called if one.roles == several and several != roles]
        return _with_own_failure(alike, self.name)


def _recipe(trials: Sequence[_Trial], is_square: bool, shows: bool | None) -> LayerRecipe:
    """The recipe of the first of these trials, with every layout that runs like it."""
    roles, (values, way) = trials[0].roles, trials[0].ways[0]
    alike = [one.ways[0] for one in trials if one.roles == roles]
    same = [other.layout for one, other in alike if one == values]
    layouts = LAYOUTS if way.layout in LAYOUTS else tuple(dict.fromkeys(same))
    choices = [one for one, other in alike if other.layout == way.layout and _form(one) == _form(values)]
    told = [one for one in choices if shows is None or _shown_by(one) in (None, shows)]
    return LayerRecipe(roles, layouts, tuple(told or choices), is_confirmed=True, is_square=is_square)


def _with_heads(recipe: LayerRecipe, trial: _Trial, subject: Subject, request: Request) -> LayerRecipe:
    """The recipe with a number of heads for the width of one, where the parameters are as many for any number."""
    keys = [key for key, role in recipe.roles.items() if role == "head_dim" and key.rpartition(".")[2] not in ROLES]
    if len(keys) != 1 or "num_heads" in recipe.roles.values():
        return recipe
    others = [replace(trial, roles={**recipe.roles, keys[0]: role}) for role in ("num_heads", "two", "head_dim")]
    sizes = _SQUARE[0] if recipe.is_square else _EVEN[0]
    seen = _run(others, subject, request, sizes)
    numbers = [one.report.get("numbers", 0) for one in seen if one.running(sizes)]
    is_number = len(numbers) >= 2 and numbers[0] == numbers[1] and numbers[0] != numbers[-1] * (len(numbers) == 3)
    return replace(recipe, roles=others[0].roles) if is_number else recipe


def _form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without what their masks mean by True."""
    return {name: re.sub(r"shows: \w+", "shows", one) if isinstance(one, str) else one for name, one in values.items()}


def _shown_by(values: Mapping[str, Any]) -> bool | None:
    """What masks among these mean by True or 1: visible; None where there is none."""
    masks = [one for one in values.values() if isinstance(one, str) and one.startswith("shows")]
    return masks[0].startswith(("shows: True", "shows: 1")) if masks else None


def _with_own_failure(trials: Sequence[_Trial], name: str) -> LayerRecipe | None:
    """The recipe of the first trial with an exception that no argument can cause, when it is built or first called."""
    for trial in trials:
        for failed in (trial.report.get("failed"), *(run.get("failed") for run in trial.report["runs"][:1])):
            if failed is not None and re.search(_OWN % re.escape(name), f"{failed.type}: {failed.message}"):
                return LayerRecipe(trial.roles, failure=failed)
    return None


def _ways(subject: Subject, layouts: Sequence[str]) -> list[tuple[Mapping[str, Any], CallForm]]:
    choices = [*choices_of_values(subject.described), *_dicts_of_x(subject)]
    return [(one, way) for one in choices for way in call_forms(subject.described, [], layouts, one)]


def _dicts_of_x(subject: Subject) -> Iterator[dict[str, Any]]:
    """x as the one value of a dict, where forward reads a text key of its only argument."""
    required = [p["name"] for p in subject.described["call"] if p["required"]]
    if len(required) == 1:
        text = own_text(subject.source, subject.described["name"])
        keys = dict.fromkeys(re.findall(rf"\b{required[0]}\[\s*[\"'](\w+)[\"']\s*\]", text))
        yield from ({required[0]: {"dict": {key: "x"}}} for key in keys)


def _run(trials: Sequence[_Trial], subject: Subject, request: Request, sizes: ProbeSizes) -> list[_Trial]:
    """The trials with their reports, at these sizes, or as the learner's own values change them."""
    fitted = [fit_sizes(sizes, request.own, one.roles) for one in trials]
    reports: dict[int, TrialReport] = {}
    for some in dict.fromkeys(fitted):
        numbers = [i for i, one in enumerate(fitted) if one == some]
        x = random_tensor(1, some.B, some.T, some.width)
        jobs = [_job(trials[i], subject, request, some) for i in numbers]
        seen = subject.run({"trials": jobs}, {**inputs(x), **other_inputs(x, some.head_dim)})
        reports |= dict(zip(numbers, seen.trials, strict=True))
    return [replace(one, report=reports[i]) for i, one in enumerate(trials)]


def _job(trial: _Trial, subject: Subject, request: Request, sizes: ProbeSizes) -> TrialJob:
    arguments = None
    if not subject.is_built:
        # A number of heads must divide the width; what is taken for the width of a head must run without that.
        odd = {key: "head_dim + 2" if role == "head_dim" else role for key, role in trial.roles.items()}
        choose = partial(choose_arguments, subject.described, sizes, own=request.own, source=subject.source)
        arguments = choose(roles=odd).arguments
    return {"build": arguments, "calls": [way.as_json() for _, way in trial.ways]}


def _candidates(settings: Sequence[Setting], own: Mapping[str, Any], source: str) -> Iterator[dict[str, str]]:
    """Roles for the arguments that no name tells of, the likeliest first; then for the others, too."""
    named = [one.role for one in settings if one.role]
    costs = [_options(one, named, source, not own.keys().isdisjoint((one.key, one.path[-1]))) for one in settings]
    options = [sorted(one.items(), key=lambda pair: pair[1]) for one in costs]

    # There may be a width for each of several inputs, such as text_dim and image_dim: all are the same here.
    is_wide = [
        re.search(r"_(dim|width|channels)$", s.path[-1]) and guess_role(s.path[-1]) == "d_model" for s in settings
    ]

    def cost(ranks: tuple[int, ...]) -> float:
        chosen = [options[i][rank][0] for i, rank in enumerate(ranks)]
        counted = [role for i, role in enumerate(chosen) if role != "d_model" or not is_wide[i]]
        sizes = [role for role in counted if role in ("d_model", "num_heads", "head_dim", "context_length")]
        is_unusual = "num_heads" in chosen[chosen.index("head_dim") :] if "head_dim" in chosen else False
        base = sum(options[i][rank][1] for i, rank in enumerate(ranks))
        return base + _ANOTHER * (len(sizes) - len(set(sizes))) + is_unusual / 2

    for ranks in sorted(_cheapest(options), key=cost)[:_MOST_BUILT]:
        yield {one.key: options[i][rank][0] for i, (one, rank) in enumerate(zip(settings, ranks, strict=True))}


def _cheapest(options: Sequence[Sequence[tuple[str, int]]]) -> list[tuple[int, ...]]:
    """One option for each argument, by its rank: the sets that cost least. The options of each are sorted by cost."""
    start = (0,) * len(options)
    queue, seen = [(0, start)], {start}
    found: list[tuple[int, ...]] = []
    while queue and len(found) < 4 * _MOST_BUILT:
        base, ranks = heapq.heappop(queue)
        found.append(ranks)
        for i, rank in enumerate(ranks):
            after = (*ranks[:i], rank + 1, *ranks[i + 1 :])
            if rank + 1 < len(options[i]) and after not in seen:
                seen.add(after)
                heapq.heappush(queue, (base + options[i][rank + 1][1] - options[i][rank][1], after))
    return found


def _options(one: Setting, named: Sequence[str], source: str, is_own: bool) -> dict[str, int]:
    """The roles that an argument may have, with what each costs."""
    if one.role == "config":
        return {"config": 0}
    if not one.required:
        return {KEEP: 0} if one.role in ("", KEEP) else {one.role: 0, KEEP: _DEFAULT}
    is_wide = {"d_in", "d_out", "d_model"} & {*named}
    taken = {*named, *(("d_model",) if is_wide else ())}
    costs = {role: cost + _ANOTHER * (role in taken) for role, cost in _COSTS.items()}
    costs["head_dim"] += 2 * is_own  # nothing shows that it is none: see _job
    if one.role:
        others = costs if one.path[-1] in _AMBIGUOUS else {}
        return {one.role: 0} | {role: cost + _NOT_ITS_NAME for role, cost in others.items() if role != one.role}
    guess = guess_role(one.path[-1])  # of a number of heads it is shown that it divides the width: see _job
    compared = re.findall(rf"\b{one.path[-1]}\s*(?:==|!=|(?:not )?in)\s*[(\[{{]?\s*['\"](\w+)['\"]", source)
    texts = {f"={text}": rank for rank, text in enumerate(compared[:3])}
    return costs | texts | ({guess: 0} if guess not in ("", "num_heads") else {})
