"""Wiring: how a block joins its attention, its feed-forward and its norms; and whether a model knows positions.

The parts run alone, and are joined here in every way that people join them: the way that gives the block's output is
the block's wiring. The parts themselves may be anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.blocks.data_flow import PARTS, Flow, JoinedPart, read_steps
from regard.school.check.blocks.lost_parts import PartRun, lost_parts, shared_layers, unread_masks
from regard.school.check.compare.call_forms import LAYOUTS, call_forms, random_tensor
from regard.school.check.compare.constructor_arguments import Built, choose_arguments
from regard.school.check.compare.experiment import known_weights
from regard.school.check.compare.recipes import LayerRecipe, find_recipe, known_recipe
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.protocol import DriverJob, ModuleContents, ModuleInside, Observation
from regard.school.check.learner_code.subject import Subject
from regard.school.check.learner_code.text_hints import own_text
from regard.school.check.request import Request
from regard.school.check.verdict import Finding, known

_WHY_RESIDUAL = "A block adds to what it is given: without that, the tokens themselves and their gradients are lost."
_WHY_NORM = "A norm keeps the numbers that a part reads at one size, however deep the model is."
_FIX = "x = x + self.attn(self.norm1(x))  # and x = x + self.mlp(self.norm2(x))"
# Ways to be wrong around the attention and around the feed-forward, and what is said of it.
_REPLACED = "What {part} gives is not added to what it was given, but takes its place."
_NORMED = "What {part} gives is added to its normed input."
_FROM_START = "What {part} gives is added to the input of the block, without what the attention added."
_NOT_NORMED = "What {part} reads is not normed, though the block has a norm for it."
_TWICE = "What {part} reads goes through two norms, one right after the other."
_DOUBLED = "What {part} gives is added to twice what it was given."
_MISPLACED = "The norm of {part} is not where the text of the block says: {said}."
WIRED = {
    name: (known(name, _WHY_NORM if says in (_NOT_NORMED, _TWICE, _MISPLACED) else _WHY_RESIDUAL, _FIX), says)
    for name, says in {
        "no residual around the attention": _REPLACED,
        "no residual around the feed-forward": _REPLACED,
        "residual of the block's input around the feed-forward": _FROM_START,
        "residual of the normed input around the attention": _NORMED,
        "residual of the normed input around the feed-forward": _NORMED,
        "no norm before the attention": _NOT_NORMED,
        "no norm before the feed-forward": _NOT_NORMED,
        "norm applied twice": _TWICE,
        "residual added twice": _DOUBLED,
        "norm in the wrong place": _MISPLACED,
    }.items()
}
# Wrong residuals around each part; "" is right.
_AROUND = [("", *(n for n in WIRED if n.endswith(f"around the {part}"))) for part in ("attention", "feed-forward")]
_STYLES = {
    "pre": "x + attention(norm(x)), then x + feed_forward(norm(x))",
    "post": "norm(x + attention(x)), then norm(x + feed_forward(x))",
    "branch": "x + norm(attention(x)), then x + norm(feed_forward(x))",
    "parallel": "x + attention(norm(x)) + feed_forward(norm(x))",
}
# What the text of a block may say: the formula of post-norm, that it is not meant, and what makes a wiring its own.
_SAYS_POST = r"(?i)(norm|\bln)\w*\(\w+\s*\+\s*\w+\(\w+\)\)"
_SAYS_ELSE = r"(?i)\bpre[- _]?(layer|ln|norm)|instead|unlike|rather|\bnot\b|\bhere\b|sandwich"
_SAYS_WITHOUT = r"(?i)(no|without|skip-?less)[ -](the )?(residual|skip|shortcut)|bit_?linear"
NO_POSITIONS = known(
    "no positions",
    "Attention compares tokens and knows no order; a position embedding is added to the token embedding.",
    "x = self.tok_emb(ids) + self.pos_emb(torch.arange(T, device=ids.device))",
)
NO_ACTIVATION = known(
    "feed-forward without activation",
    "Two linear layers in a row are one linear layer.",
    "nn.Sequential(nn.Linear(E, 4 * E), nn.GELU(), nn.Linear(4 * E, E))",
)
_B, _T = 2, 4


@dataclass
class Wiring:
    """What was found around an attention; note: a sentence about it."""

    attention: ModuleInside | None  # None where the module is attention itself
    findings: list[Finding] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class BlockParts:
    """The paths of the parts of a block, within a module."""

    block: str  # "" where the module is the block itself
    attention: str
    feed_forward: str
    norms: tuple[str, ...]


def attention_inside(contents: ModuleContents) -> ModuleInside | None:
    """The attention inside a block or a model; None where the module is attention itself."""
    inside = [one for one in contents.get("inside", ()) if any(w in one["name"].lower() for w in ("attention", "attn"))]
    parameters = [p for p in contents.get("parameters", ()) if p["owner"]]  # of one layer that is there several times
    weights = [p["name"] for p in parameters if len(p["shape"]) > 1 and not p["is_mask"]]
    norms = any("norm" in p["name"].lower() or "ln" in p["name"].lower() for p in contents.get("parameters", ()))
    for one in inside:
        if not any(name.startswith(f"{one['path']}.") for name in weights):
            continue  # a part of the attention, such as a class for the scaled dot product
        alike = tuple(f"{other['path']}." for other in inside if other["name"] == one["name"])
        rest = [name for name in weights if not name.startswith(alike)]
        if len(rest) >= (1 if norms else 2):  # an output projection alone makes no block
            return one
    return None


def check_wiring(subject: Subject, request: Request) -> Wiring | None:
    """The wiring of a class or module; None where it is no block and no model, and nothing around it is wrong."""
    built, deep, recipe = Built(), Built(), LayerRecipe()
    if not subject.is_built:
        choose = partial(choose_arguments, subject.described, request.probes[0], source=subject.source)
        built = choose(own=request.own)
        if built.unknown:
            recipe = find_recipe(subject, request)
            built = choose(own=request.own, roles=recipe.roles)
            if not recipe.is_confirmed:
                return None
        layers = {key: 2 for key, role in built.roles.items() if role == "num_layers"}
        deep = choose(own={**layers, **request.own}, roles=recipe.roles)
    contents = subject.run({"build": built.arguments}, {}).contents
    attention = attention_inside(contents)
    wiring = Wiring(attention)
    runner = _PartRunner(subject, built.arguments, contents)
    if attention is not None:
        name, path = subject.described["name"], attention["path"]
        wiring.note = f"Of {name}, only the attention was checked ({path}), not the wiring around it."
    if runner.is_without_positions():
        says = (
            "The model gives the same for its last token in whatever order the tokens before it stand: "
            "nothing tells it their positions."
        )
        line = line_with(subject.source, r"=\s*self\.\w*emb\w*\(|=\s*self\.\w*(wte|token)\w*\(")
        wiring.findings.append(NO_POSITIONS.found(says, line))
    wiring.findings += [] if wiring.findings else _lost(subject, deep, contents if deep == built else None)
    if not wiring.findings:
        _check_block(runner, wiring)
    if attention is not None:
        wiring.findings += unread_masks(subject, attention)
    return wiring if attention is not None or wiring.findings else None


def _lost(subject: Subject, built: Built, contents: ModuleContents | None) -> list[Finding]:
    """Layers that are one layer, and modules that change nothing."""
    contents = contents or subject.run({"build": built.arguments}, {}).contents
    if shared := list(shared_layers(contents, subject)):
        return shared
    runner = _PartRunner(subject, built.arguments, contents)
    for x in runner.texts(""):
        if (out := runner.run("", x)) is not None:
            return list(lost_parts(runner.as_run(x), out, subject))
    return []


def find_parts(contents: ModuleContents, attention: str) -> BlockParts | None:
    """The parts of the block that holds this attention; None unless they are it, one feed-forward and norms."""
    block, dot, _ = attention.rpartition(".")
    prefix = block + dot
    inside = [one for one in contents.get("inside", ()) if one["path"].startswith(prefix)]
    children = [one for one in inside if "." not in one["path"].removeprefix(prefix)]
    norms = tuple(one["path"] for one in children if "norm" in one["name"].lower() and one["path"] != attention)
    weights = [p["name"] for p in contents.get("parameters", ()) if len(p["shape"]) > 1]
    others = [one["path"] for one in children if one["path"] not in (attention, *norms)]
    others = [path for path in others if sum(name.startswith(f"{path}.") for name in weights) > 1]
    known_paths = tuple(f"{path}." for path in (attention, *others))
    is_loose = any(name.startswith(prefix) and not name.startswith(known_paths) for name in weights)
    if len(others) != 1 or len(norms) > 2 or (is_loose and prefix):
        return None
    return BlockParts(block, attention, others[0], norms)


class _PartRunner:
    """Runs a module or a part of it, always with the same weights."""

    def __init__(self, subject: Subject, arguments: dict[str, Any] | None, contents: ModuleContents) -> None:
        self.subject, self.arguments, self.contents = subject, arguments, contents
        self.weights = known_weights(contents, 5)
        self.described = {one["path"]: one for one in contents.get("inside", ())} | {"": subject.described}

    def run(self, path: str, x: Tensor) -> Tensor | None:
        """What a part makes of x; None where it fails, or gives another shape."""
        return self.output(self.as_run(x, path).run(), x)

    def output(self, seen: Observation, x: Tensor) -> Tensor | None:
        """The output for x among the tensors of a run."""
        outs = seen.runs[0].outputs if seen.runs and seen.failure is None else []
        return next((t for t in outs if t.is_floating_point() and t.shape[:2] == x.shape[:2] and t.dim() == 3), None)

    def as_run(self, x: Tensor, path: str = "") -> PartRun:
        """A run of a part with x."""
        prefix = f"{path}." if path else ""
        values = known_recipe(self.subject).choices[0] if not path else {}
        way = next(call_forms(self.described[path], [], LAYOUTS[:1], values))
        own = {n.removeprefix(prefix): value for n, value in self.weights.items() if n.startswith(prefix)}
        job: DriverJob = {"build": self.arguments, "inside": path, "state": True, "calls": [way.as_json()]}
        return PartRun(self.subject, job, x, own)

    def texts(self, path: str) -> Iterator[Tensor]:
        """Inputs that a module may take: vectors as wide as most of its weights, and for a model token ids."""
        parameters = [p for p in self.contents.get("parameters", ()) if p["name"].startswith(path)]
        widths = Counter(p["shape"][-1] for p in parameters if len(p["shape"]) == 2)
        if widths:
            yield random_tensor(3, _B, _T, widths.most_common(1)[0][0])
        sizes = [p["shape"][0] for p in parameters if p["owner"].endswith("Embedding")]
        if sizes and not path:
            yield torch.arange(_B * _T).view(_B, _T) % sizes[0]

    def is_without_positions(self) -> bool:
        """Is the last output of a model of one layer the same when two tokens before it change places?"""
        layers = [one for one in self.contents.get("inside", ()) if one["path"].rpartition(".")[2].isdigit()]
        embedding = next((p for p in self.contents.get("parameters", ()) if p["owner"].endswith("Embedding")), None)
        if embedding is None or len([one for one in layers if "ttention" in one["name"] or "lock" in one["name"]]) > 1:
            return False
        ids = torch.arange(_T).repeat(_B, 1) % embedding["shape"][0]
        first, second = self.run("", ids), self.run("", ids[:, [1, 0, *range(2, _T)]])
        if first is None or second is None or first.shape[-1] < 2:
            return False
        return same(first[:, -1], second[:, -1]) and not same(first[:, 0], second[:, 0])


def _check_block(runner: _PartRunner, wiring: Wiring) -> None:
    """How a block is joined: as its torch calls show it, or else as its parts do that run alone."""
    path = wiring.attention["path"] if wiring.attention is not None else ""
    block = path.rpartition(".")[0]
    x = next(runner.texts(block), None)
    if x is None or not x.is_floating_point():
        return
    seen = runner.as_run(x, block).run(record=True)
    out = runner.output(seen, x)
    if out is None or out.shape != x.shape or bool(out.isnan().any()):
        return
    name = runner.described[block]["name"]
    parts = find_parts(runner.contents, path) if path else None
    if parts is not None:
        wiring.findings += _without_activation(runner, parts.feed_forward, x)
    steps = read_steps(Flow(seen.recorded, x).of(out))
    text = own_text(runner.subject.source, name)
    if found := list(_wrong_steps(steps, text)):
        wiring.findings += [replace(one, line=_own_line(runner.subject.source, text, one.line, path)) for one in found]
        wiring.note = ""
    elif parts is not None:
        _compare_ways(runner, parts, wiring, x, out)
    elif path and len({step.style for step in steps}) == 1 and {*PARTS} == {step.kind for step in steps}:
        wiring.note = f"The wiring of {name} is right: every part is added to what it reads."


def _own_line(source: str, text: str, line: int, path: str) -> int:
    """A line of the block itself: where it calls its attention, if the line is in another class."""
    first = source[: max(source.find(text), 0)].count("\n") + 1
    is_own = first <= line < first + text.count("\n") + 1
    return line if is_own else line_with(text, rf"self\.{path.rpartition('.')[2]}\(") + first - 1


def _wrong_steps(steps: list[JoinedPart], text: str) -> Iterator[Finding]:
    """What is wrong in how the parts are joined, where that is not what the text of the block says."""
    kinds = [step.kind for step in steps]
    if not 1 <= kinds.count("attention") <= 2 or kinds.count("feed-forward") > 1:
        return
    is_wrong = False
    for step in reversed(steps):
        name = f"{step.wrong} around the {step.kind}" if step.wrong.startswith(("no ", "residual of")) else step.wrong
        is_only = all(one.wrong.startswith("no ") for one in steps) or len(steps) == 1
        is_meant = (is_only and name != step.wrong) or re.search(_SAYS_WITHOUT, text)
        if step.wrong and not is_meant:
            is_wrong = True
            mistake, says = WIRED[name]
            yield mistake.found(says.format(part=f"the {step.kind}"), step.line)
    if not is_wrong:
        yield from _misplaced_norm(steps, text.partition("def ")[0])


def _misplaced_norm(steps: list[JoinedPart], words: str) -> Iterator[Finding]:
    """A norm that is before a part, or on its branch, where the words of the block say that it is post-norm."""
    odd = [step for step in reversed(steps) if step.style and "post" not in step.style]
    if odd and re.search(_SAYS_POST, words) and not re.search(_SAYS_ELSE, words):
        mistake, says = WIRED["norm in the wrong place"]
        yield mistake.found(says.format(part=f"the {odd[0].kind}", said=_STYLES["post"]), odd[0].line)


def _compare_ways(runner: _PartRunner, parts: BlockParts, wiring: Wiring, x: Tensor, out: Tensor) -> None:
    """The way to join the parts that gives the output of the block."""
    name, source = runner.described[parts.block]["name"], runner.subject.source
    for way in (way for most in (0, 1, 2) for way in ways(runner.run, parts, most)):
        if same(way.make(x), out):
            wiring.note = "" if way.wrong else f"The wiring of {name} is right: {way.words}."
            for wrong in way.wrong:
                mistake, says = WIRED[wrong]
                part = wrong[wrong.index("the ") :]
                path = parts.attention if part == "the attention" else parts.feed_forward
                line = line_with(source, rf"self\.{path.rpartition('.')[2]}\(")
                wiring.findings.append(mistake.found(says.format(part=part), line))
            return
    wiring.note = f"The wiring of {name} around its attention could not be checked: it is none of the usual ones."


@dataclass(frozen=True)
class Way:
    """One way to join the parts; the names of what is wrong in it."""

    part: Callable[[str, Tensor], Tensor]  # what the part at a path makes of a tensor
    parts: BlockParts
    style: str
    norms: tuple[str, str]
    around: tuple[str, str]  # the wrong residuals around the attention and around the feed-forward
    wrong: tuple[str, ...]

    @property
    def words(self) -> str:
        """The wiring in words."""
        return _STYLES[self.style] if self.parts.norms else "no norms"

    def make(self, x: Tensor) -> Tensor:
        """What a block that is joined in this way makes of x."""
        paths = (self.parts.attention, self.parts.feed_forward)
        if self.style == "parallel":
            return x + sum(self.part(path, self.part(norm, x)) for path, norm in zip(paths, self.norms, strict=True))
        y = x
        for path, norm, wrong in zip(paths, self.norms, self.around, strict=True):
            before = self.part(norm, y) if self.style == "pre" else y
            made = self.part(path, before)
            made = self.part(norm, made) if self.style == "branch" else made
            added = before if "normed" in wrong else x if "block's input" in wrong else y
            made = made if wrong.startswith("no residual") else added + made
            y = self.part(norm, made) if self.style == "post" else made
        return y


def ways(run: Callable[[str, Tensor], Tensor | None], parts: BlockParts, mistakes: int) -> Iterator[Way]:
    """Every way to join the parts with so many mistakes; `run` gives what a part makes of a tensor."""

    @cache  # a tensor is a key by its identity
    def part(path: str, x: Tensor) -> Tensor:
        """A norm that is missing changes nothing; a part that does not take x makes NaN."""
        out = run(path, x) if path else x
        return out if out is not None and out.shape == x.shape else torch.full_like(x, torch.nan)

    first, second = (parts.norms[0], parts.norms[-1]) if parts.norms else ("", "")
    unnormed = ("", "no norm before the attention", "no norm before the feed-forward") if first else ("",)
    orders = [(first, second)] if first == second else [(first, second), (second, first), (first, first)]
    for style, place, (a, b), one, two in product(_STYLES, unnormed, orders, _AROUND[0], _AROUND[1]):
        wrong = tuple(name for name in (one, place, two) if name)
        if len(wrong) == mistakes and _is_possible(style, wrong, is_shared=first != second and a == b):
            norms = ("" if place.endswith("attention") else a, "" if place.endswith("forward") else b)
            yield Way(part, parts, style, norms, (one, two), wrong)


def _is_possible(style: str, wrong: tuple[str, ...], is_shared: bool) -> bool:
    """Can a block of this style have these mistakes? Only branches that read the same tensor share a norm."""
    if style == "parallel":
        return not wrong
    return not is_shared and (style == "pre" or not any("normed" in one for one in wrong))


def _without_activation(runner: _PartRunner, path: str, x: Tensor) -> Iterator[Finding]:
    """Is the feed-forward a linear map? Then f(a + b) + f(0) = f(a) + f(b)."""
    y = x.flip(1) * 0.7
    a, b, both, nothing = (runner.run(path, t) for t in (x, y, x + y, torch.zeros_like(x)))
    if a is None or b is None or both is None or nothing is None or not same(a + b, both + nothing):
        return
    says = "The feed-forward is a linear map: there is no activation between its layers, or none that does anything."
    line = line_with(runner.subject.source, rf"self\.{path.rpartition('.')[2]}\s*=")
    yield NO_ACTIVATION.found(says, line)
