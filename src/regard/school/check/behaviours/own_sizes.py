"""Own sizes: what a class promises by its arguments. Its defaults fit each other, and a head may have any width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

import torch

from regard.school.check.behaviours.configuration import promised, value_at, with_value
from regard.school.check.behaviours.probing import Probe, close, is_refused, one_line, text
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.compare.anatomy import dissect
from regard.school.check.compare.call_forms import random_tensor
from regard.school.check.compare.constructor_arguments import HEADS, WIDTH, has_config
from regard.school.check.compare.experiment import Experiment, experiment
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.explain.shapes import WIDTH as LINEAR_WIDTH
from regard.school.check.learner_code.subject import is_class
from regard.school.check.learner_code.text_hints import names_rotary
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import HEAD_DIM, WIDTH_IN

DEFAULTS = known("its own defaults do not fit", "Whoever builds the layer without arguments gets one that fails.")
HEAD_WIDTH = known(
    "head width does not fit",
    "Where the width of a head is an argument, the joined heads have num_heads · head_dim numbers, not d_model.",
    "self.out_proj = nn.Linear(num_heads * head_dim, d_model)",
    "out",
)
NO_EFFECT = known(
    "rotary positions over the wrong axis",
    "The angle of a vector is its position, counted along the axis of the tokens.",
    "angles = torch.arange(T)[:, None] * frequencies  # (T, head_dim / 2), for q and k of (B, H, T, head_dim)",
    "queries",
)
_SQUARES = (16, 49, 64)  # tokens of windows
_LARGEST = 1024  # a width that is built only to see whether it runs


def _is_own_class(result: Experiment) -> bool:
    return is_class(result.subject) and not has_config(result.subject.described)


@behaviour("its defaults")
def own_defaults(result: Experiment) -> Iterator[Finding]:
    """Built without arguments, it runs."""
    parameters = [p for p in result.subject.described.get("build", ()) if not p["kind"].startswith("VAR_")]
    sizes = {p["name"]: p["default"] for p in parameters if type(p["default"]) is int}
    widths = [sizes[name] for name in (*WIDTH_IN, *WIDTH) if name in sizes]
    if not _is_own_class(result) or any(p["required"] for p in parameters) or not widths or widths[0] > _LARGEST:
        raise NotOffered
    texts = [random_tensor(41, result.sizes.B, T, widths[0]) for T in (result.sizes.T, *_SQUARES)]
    runs = (result.run(1, {"x": x}, build={}, state=False, dtype="float32").failure for x in texts)
    failures = list(takewhile(lambda one: one is not None, runs))
    failed = failures[0] if len(failures) == len(texts) else None
    if failed is not None and not is_refused(result, failed):
        listed = ", ".join(f"{name}={value}" for name, value in sizes.items())
        yield DEFAULTS.found(f"Built with its own defaults ({listed}), it fails: {one_line(failed)}.", failed.line)


@behaviour("two widths")
def two_widths(result: Experiment) -> Iterator[Finding]:
    """Where it takes d_in and d_out, and ran with equal ones only: is it a linear layer that is built the wrong way?"""
    chosen, given = result.built.roles, result.built.arguments or {}
    widths = {role: given.get(key) for key, role in chosen.items() if role in ("d_in", "d_out")}
    if not is_class(result.subject) or len(widths) < 2 or len({*widths.values()}) > 1:
        raise NotOffered
    masked = bool(result.call.mask)
    other = experiment(result.subject, result.sizes, 3, result.request, square=False, masked=masked, most=0)
    failed, first = other.failed, result.subject.described["call"][0]["name"]
    if failed is None or is_refused(result, failed):
        raise NotOffered
    says = f"with d_in other than d_out it fails: {one_line(failed)}"
    reads_x = re.search(rf"self\.\w+\({first}\)", "".join(result.subject.source.splitlines()[failed.line - 1 :][:1]))
    if not reads_x or "shapes cannot be multiplied" not in failed.message:
        raise NotChecked(says)
    yield LINEAR_WIDTH.found(f"{says[0].upper()}{says[1:]}.", failed.line)


@behaviour("head width")
def free_head_width(result: Experiment) -> Iterator[Finding]:
    """With another width of heads, it still runs."""
    built, settings = result.built.arguments, list(promised(result)) if is_class(result.subject) else []
    paths = [one.path for one in settings if one.path[-1] in HEAD_DIM]
    has_others = all(any(one.path[-1] in names for one in settings) for names in (HEADS, (*WIDTH, *WIDTH_IN)))
    if not built or len(paths) != 1 or not has_others or type(width := value_at(built, paths[0])) is not int:
        raise NotOffered
    failed = result.run(1, build=with_value(built, paths[0], width + 2), state=False).failure
    if failed is not None and not is_refused(result, failed):
        says = f"With {paths[0][-1]}={width + 2} it fails: {one_line(failed)}."
        yield HEAD_WIDTH.found(says, failed.line)


def _is_blind(result: Experiment) -> bool:
    """Is the output for the last token the same, whatever the order of the tokens before it?"""
    x, probe = text(result, 43, result.sizes.B, result.sizes.T), Probe(result)
    for one in (x, torch.cat((x[:, :-1].flip(1), x[:, -1:]), dim=1)):
        probe.add(one)
    out, otherwise = probe.run()
    return out is not None and otherwise is not None and close(out[:, -1], otherwise[:, -1])


@behaviour("positions")
def positions_have_an_effect(result: Experiment) -> Iterator[Finding]:
    """Queries that are rotated by their positions differ from position to position."""
    calls = {call.name for call in result.seen.recorded}
    own = any(not name.startswith("x") for name in result.call.names)  # angles that are passed may be 0
    is_turned = {"cos", "sin"} <= calls or "polar" in calls
    if not names_rotary(result.text) or not is_turned or own or result.extension is not None:
        raise NotOffered
    found = dissect(result)
    if _is_blind(result) if isinstance(found, str) or result.is_right else not found.queries.map.has_positions:
        says = "Queries and keys are rotated, and not by their positions: the order of the tokens changes nothing."
        yield NO_EFFECT.found(says, line_with(result.subject.source, r"arange\("))
