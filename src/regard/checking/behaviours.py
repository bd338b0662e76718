"""Behaviours: what the values of one run cannot show, such as dropout, other sizes, fp16 and the caller's tensors.

Each function tries one thing and yields what it found. A new behaviour is a new function in BEHAVIOURS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.checking.building import CONTEXT, DROPOUT, ProbeSizes, choose_arguments, has_config, takes
from regard.checking.caching import cached_like_uncached
from regard.checking.calling import inputs, mask_forms
from regard.checking.locating import steps_of
from regard.checking.subject import Observation, Subject
from regard.checking.values import Experiment, Request, is_formula
from regard.checking.verdict import Finding
from regard.mistakes.search import same
from regard.traces.arrangements import Numbers

_IN_PLACE = ("iadd", "imul", "isub", "itruediv", "setitem", "iand", "ior")


@dataclass
class Situation:
    """A layer whose values are explained: right, or wrong in a known way."""

    subject: Subject
    result: Experiment
    request: Request
    masked: Experiment | None = None  # called with a mask, where it takes one

    @property
    def is_right(self) -> bool:
        """Are its values right?"""
        return self.result.is_right

    def run(self, number: int = 1, tensors: dict[str, Tensor] | None = None, **changes: Any) -> Observation:
        """Call it so many times with the same input."""
        assert self.result.call is not None
        calls = [self.result.call.as_json()] * number
        return self.subject.run(self.result.job(calls=calls, **changes), {**self.result.tensors, **(tensors or {})})

    def with_dropout(self, number: int, **changes: Any) -> Observation:
        """The same with a dropout of 0.5."""
        built = self.result.built
        if built is not None:
            built = choose_arguments(self.subject.described, self.result.sizes, 0.5, own=self.request.own).arguments
            built = {
                **built,
                **{n: v for n, v in (self.result.built or {}).items() if n not in DROPOUT and type(v) is int},
            }
        return self.run(number, build=built, dropout=0.5, seeds=True, **changes)

    def outputs(self, seen: Observation, sizes: ProbeSizes | None = None) -> list[Tensor]:
        """The output of each call that did not fail."""
        sizes = sizes or self.result.sizes
        assert self.result.call is not None
        results = [self.result.call.outputs(run.outputs, sizes.B, sizes.T) for run in seen.runs if not run.failed]
        return [one[0] for one in results if one]


def observe(situation: Situation) -> list[Finding]:
    """Everything that is found, in the order in which a learner should read it."""
    return [finding for behaviour in BEHAVIOURS for finding in behaviour(situation)]


def changes_arguments(situation: Situation) -> Iterator[Finding]:
    """In-place change of the caller's input or mask."""
    for result in (situation.result, situation.masked):
        if result is None or result.call is None:
            continue
        job = result.job(calls=[result.call.as_json()], record=True)
        seen = situation.subject.run(job, result.tensors)
        changed = sorted({name.partition(",")[0] for run in seen.runs for name in run.changed})
        if not changed:
            continue
        what = "input" if changed[0] == "x" else "mask"
        shape = result.tensors["x"].shape if what == "input" else None
        lines = [
            call.line
            for call in seen.recorded[seen.built :]
            if (call.name.endswith("_") or call.name in _IN_PLACE)
            and (call.value.shape == shape if shape else call.value.dim() < 4 or call.value.shape[1] == 1)
        ]
        yield Finding(
            f"in-place change of the caller's {what}",
            f"After the call, the {what} that was passed has other numbers than before.",
            "Whoever calls the layer may still need that tensor: a residual connection adds the input again.",
            "y = x + 1  # a new tensor, in place of x += 1 or x.add_(1)",
            line=lines[0] if lines else 0,
        )
        return


def random_in_eval(situation: Situation) -> Iterator[Finding]:
    """Dropout that also acts in eval(); or another source of chance."""
    outs = situation.outputs(situation.run(2, seeds=True))
    if len(outs) == 2 and not same(outs[0], outs[1]):
        yield Finding("", "In eval(), the same input gives another output each time, and dropout is not the reason.")
        return
    seen = situation.with_dropout(2)
    outs = situation.outputs(seen)
    if len(outs) == 2 and not same(outs[0], outs[1]):
        yield Finding(
            "dropout active in eval",
            "After eval(), dropout still acts: the same input gives another output each time.",
            "Dropout is for training; F.dropout and scaled_dot_product_attention do not know of eval() by themselves.",
            "weights = F.dropout(weights, p, training=self.training)  # or nn.Dropout",
            step="dropout",
            line=seen.dropped[0].line if seen.dropped else 0,
        )


def dropout_in_training(situation: Situation) -> Iterator[Finding]:
    """Dropout that never acts, or acts on a tensor on which it does harm."""
    described, contents = situation.subject.described, situation.result.observation.contents
    is_built = situation.subject.is_built
    by_config = has_config(described) and bool(contents.get("dropouts"))
    asked = not is_built and (takes(described, DROPOUT) or by_config)
    if not asked and not contents.get("dropouts"):
        return
    seen = situation.with_dropout(2, train=True)
    outs = situation.outputs(seen)
    if len(outs) < 2:
        return
    if same(outs[0], outs[1]) and not seen.dropped:
        if asked or any(contents.get("dropouts", ())):
            yield Finding(
                "dropout never active",
                "In train(), with dropout=0.5, the same input gives the same output each time: dropout is not applied.",
                "Dropout sets some weights to 0 while training, so that no token depends on a single other.",
                "weights = self.dropout(weights)  # after the softmax",
                step="dropout",
                line=_line_with(situation.subject.source, r"self\.\w*drop\w*\s*=|self\.\w+\s*=.*drop"),
            )
        return
    first = seen.dropped[0] if seen.dropped else None
    where = _dropped_step(situation, first.value) if first is not None and first.value.numel() else ""
    if where and first is not None:
        yield Finding(
            "dropout on the wrong tensor",
            f"Dropout acts on {where}; it acts on the weights, after the softmax.",
            "A score of 0 is not hidden, exp(0) = 1; a weight of 0 is. Dropped queries, keys or inputs are other vectors.",
            "weights = self.dropout(torch.softmax(scores, dim=-1))",
            step="dropout",
            line=first.line,
        )


def _dropped_step(situation: Situation, value: Tensor) -> str:
    """The step on which dropout acts, where that is wrong; "" where it is right or unknown."""
    result = situation.result
    assert result.case is not None
    steps = steps_of(result.case, result.variants[0] if result.variants else (), result.out)
    mine = Numbers(value, rtol=1e-4, atol=1e-6)

    def has(t: Tensor, hidden: bool = True) -> bool:
        other = Numbers(t, rtol=1e-4, atol=1e-6)
        return mine.find(other, ordered=True, hidden=hidden) or (
            len(mine.sizes) > 1 and mine.part_of(other, ordered=True)
        )

    if not value.is_floating_point() or any(has(steps[n]) for n in ("weights", "context", "concat", "out")):
        return ""
    if has(steps["scores"], hidden=False) or has(steps["scaled"], hidden=False):
        return "the scores, before the softmax"
    for name in ("queries", "keys", "values"):
        if has(steps[name]):
            return f"the {name}"
    return "x" if has(result.case.x) else ""


def mask_on_another_device(situation: Situation) -> Iterator[Finding]:
    """A mask that is a plain attribute does not move with the module, nor does one that forward makes on the CPU."""
    seen = situation.run(1, devices=True)
    fault = seen.contents.get("elsewhere")
    if fault is None:
        return
    loose = [one["name"] for one in seen.contents.get("loose", ()) if len(one["shape"]) > 1]
    if loose:
        name = loose[0]
        yield Finding(
            "mask not a buffer",
            f"self.{name} is a plain tensor: it stays on the CPU when the module moves to a GPU, and is not saved.",
            "torch moves and saves parameters and buffers only.",
            f'self.register_buffer("{name}", …)',
            step="mask",
            line=_line_with(situation.subject.source, rf"self\.{re.escape(name)}\s*="),
        )
    else:
        yield Finding(
            "tensor made on the CPU",
            "A tensor that forward makes is on the CPU, wherever x is: on a GPU the layer fails.",
            "torch.ones(T, T) is made on the CPU unless it is told otherwise.",
            "torch.ones(T, T, device=x.device)",
            step="mask",
            line=fault["line"],
            is_warning=True,
        )


def overflows_in_fp16(situation: Situation) -> Iterator[Finding]:
    """−1e9 has no place in float16."""
    for result in (situation.result, situation.masked):
        if result is None or result.call is None:
            continue
        seen = situation.subject.run(result.job(calls=[result.call.as_json()], dtype="float16"), result.tensors)
        if seen.failure is not None and "overflow" in seen.failure.message:
            yield Finding(
                "−1e9 overflows in fp16",
                "In float16 it fails: the largest number there is 65504, and −1e9 does not fit.",
                "−∞ exists in every floating-point type, and its exponential is exactly 0.",
                "scores = scores.masked_fill(future, -torch.inf)",
                step="mask",
                line=seen.failure.line,
                is_warning=True,
            )
            return


def row_without_keys(situation: Situation) -> Iterator[Finding]:
    """A query that may see nothing, where the layer takes a mask."""
    result = situation.masked
    if result is None or result.call is None or result.variants is None:
        return
    if any(one.step in ("see", "hide") for one in result.variants[0]):
        return
    sizes = result.sizes
    visible = torch.ones(sizes.T, sizes.T, dtype=torch.bool).tril()
    visible[2] = False
    forms = mask_forms(visible, torch.float64, sizes.B)
    seen = situation.subject.run(result.job(calls=[result.call.as_json()]), {**result.tensors, **forms})
    if any(t.isnan().any() for run in seen.runs for t in run.outputs if t.is_floating_point()):
        yield Finding(
            "fully masked row gives NaN",
            "Where the mask hides everything from a token, as in a text that is all padding, the output is NaN.",
            "The softmax of nothing but −∞ is 0 / 0. One NaN spreads to every number that is computed from it.",
            "weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)",
            step="weights",
            is_warning=True,
        )


def longer_than_context(situation: Situation) -> Iterator[Finding]:
    """A text longer than context_length that is computed without a word."""
    described, sizes = situation.subject.described, situation.result.sizes
    if situation.subject.is_built or not takes(described, CONTEXT[:4]) or situation.result.case is None:
        return
    if has_config(described) or situation.result.call is None or situation.result.call.layout != "batch first":
        return
    for T, fits in ((sizes.context_length, True), (sizes.context_length + 2, False)):
        changed = replace(sizes, T=T)
        x = _x(situation.result, changed)
        seen = situation.run(1, inputs(x))
        if fits and seen.failure is not None:
            yield Finding(
                "hard-coded sizes",
                f"A text of exactly context_length = {T} tokens fails: {seen.failure.message.splitlines()[0]}.",
                "context_length is the longest text that fits, so that many tokens must fit.",
                line=seen.failure.line,
            )
        elif not fits and seen.failure is None and situation.outputs(seen, changed):
            yield Finding(
                "sequence longer than the context",
                f"{T} tokens are computed without a word, where context_length is {T - 2}.",
                "A model has positions for context_length tokens only; say so instead of computing something.",
                'if T > self.context_length: raise ValueError(f"{T} tokens do not fit")',
                is_warning=True,
            )


def other_sizes(situation: Situation) -> Iterator[Finding]:
    """One text, one token: where an axis disappears by squeeze(), or a size is written as a number."""
    result = situation.result
    if result.call is None or result.case is None or result.call.layout != "batch first" or result.call.mask:
        return
    for B, T, words in (
        (1, result.sizes.T, "one text (B = 1)"),
        (result.sizes.B, 1, "one token (T = 1)"),
        (3, 4, "3 texts of 4 tokens"),
    ):
        sizes = replace(result.sizes, B=B, T=T)
        x = _x(result, sizes)
        seen = situation.run(1, inputs(x))
        if seen.failure is not None:
            message = seen.failure.message.splitlines()[0]
            yield Finding("", f"It fails for {words}: {message}.", line=seen.failure.line)
            return
        outs = situation.outputs(seen, sizes)
        if not outs:
            yield Finding("", f"For {words} the output has another shape: {tuple(seen.runs[0].outputs[0].shape)}.")
            return
        if result.is_right and not is_formula(result, outs[0], replace(result.case, x=result.prepared(x))):
            yield Finding(
                "",
                f"For {words} it computes something else than for {result.sizes.B} texts of {result.sizes.T} tokens.",
            )
            return


def parameters_without_use(situation: Situation) -> Iterator[Finding]:
    """Weights that change nothing, and biases that nobody asked for."""
    result = situation.result
    if result.reading is None or result.reading.assignment is None:
        return
    seen = situation.run(1, gradients=True)
    shapes = {p["name"]: p["shape"] for p in seen.contents.get("parameters", ())}
    read = result.reading.assignment.used  # of these, a mistake in the values has told already
    unused = [n for n in seen.contents.get("without_gradient", ()) if len(shapes.get(n, ())) > 1 and n not in read]
    if unused:
        listed = ", ".join(f"{n} ({' × '.join(map(str, shapes[n]))})" for n in unused[:4])
        yield Finding(
            "wrong parameter count",
            f"The layer has weights that change nothing: {listed}.",
            "They are saved, moved and counted, and never trained.",
            "",
            line=_line_with(situation.subject.source, rf"self\.{re.escape(unused[0].split('.')[0])}\s*="),
        )
    asked = next((p for p in situation.subject.described.get("build", ()) if p["name"] == "qkv_bias"), None)
    has_bias = result.reading.assignment.projections["W_query"].bias is not None
    if asked is not None and not situation.subject.is_built:
        wanted = bool(situation.request.own.get("qkv_bias", False if asked["required"] else asked["default"]))
        if wanted != has_bias:
            yield Finding(
                "wrong parameter count",
                f"qkv_bias is {wanted}, but the queries {'have a' if has_bias else 'have no'} bias.",
                "nn.Linear has a bias unless it is told otherwise.",
                "self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)",
                line=_line_with(situation.subject.source, r"nn\.Linear\("),
            )


def caches(situation: Situation) -> Iterator[Finding]:
    """A cache of keys and values."""
    yield from cached_like_uncached(situation.subject, situation.result)


def no_output_projection(situation: Situation) -> Iterator[Finding]:
    """Several heads that are joined and never mixed, in a layer that is called multi-head attention."""
    reading, name = situation.result.reading, situation.subject.described["name"].lower().replace("_", "")
    if reading is None or reading.assignment is None or reading.num_heads == 1 or reading.assignment.is_list:
        return
    if "out_proj" in reading.assignment.projections or "multihead" not in name:
        return
    yield Finding(
        "no output projection",
        "The layer has no output projection: the joined heads are returned as they are.",
        "Until the output projection, no head has seen what another found.",
        "self.out_proj = nn.Linear(d_out, d_out)  # and return self.out_proj(concat)",
        step="out",
    )


def _x(result: Experiment, sizes: ProbeSizes) -> Tensor:
    generator = torch.Generator().manual_seed(97)
    return torch.randn(sizes.B, sizes.T, result.tensors["x"].shape[-1], dtype=torch.float64, generator=generator)


def _line_with(source: str, pattern: str) -> int:
    return next((i for i, line in enumerate(source.splitlines(), 1) if re.search(pattern, line)), 0)


BEHAVIOURS = (
    changes_arguments,
    random_in_eval,
    no_output_projection,
    dropout_in_training,
    mask_on_another_device,
    other_sizes,
    caches,
    parameters_without_use,
    longer_than_context,
    row_without_keys,
    overflows_in_fp16,
)
