"""Sizes: one text and many, one token and many, and lengths at which blocks and tables end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.search import same
from regard.school.check.behaviours.probing import CLOSE, Probe, close, is_refused, one_line, text
from regard.school.check.behaviours.registry import NotChecked, behaviour
from regard.school.check.compare.call_forms import causal_mask
from regard.school.check.compare.constructor_arguments import CONTEXT
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import softmax_line
from regard.school.check.learner_code.text_hints import names_window
from regard.school.check.verdict import Finding, known

MIXED = known(
    "texts of a batch are mixed",
    "The texts of a batch have nothing to do with each other: each gives what it gives alone.",
    "queries = queries.view(B, T, num_heads, head_dim).transpose(1, 2)  # B stays in front",
)
ONE_TEXT = known(
    "right for one text only",
    "With a batch, axis 0 is the texts, axis 1 the tokens: count axes from the end.",
    "weights = torch.softmax(scores, dim=-1)",
)
LONGER = known(
    "wrong for longer texts",
    "A text may be of any length up to context_length: what is cut or taken in blocks must give the same.",
)
OLDEST = known(
    "window keeps the oldest tokens",
    "A window ends at the token itself: what leaves it is the oldest key.",
    "k, v = k[:, :, -self.window:], v[:, :, -self.window:]",
)
# What people call attention to some of the keys.
_OTHER_KEYS = r"(?i)sparse|dilat|stride|segment|document|prefix|top_?k|hash|cluster|random|stream|landmark"
LENGTHS = (17, 33, 65, 131)
_LENGTHS = tuple(name for name in CONTEXT if name != "window")  # a window may be shorter than the text
_MANY_CALLS = 150  # of torch for five tokens: it has loops over tokens, and long texts would take seconds


def is_formula_of(result: Experiment) -> bool:
    """Is it the formula and nothing beside it, so that the formula says what is right for other texts?"""
    return result.is_right and result.extension is None


def case_of(result: Experiment, x: Tensor) -> Case:
    """The case of another text."""
    mask = causal_mask(x.shape[1]) if result.call.mask else None
    texts = 1 if result.call.layout == "one text" else None
    return replace(result.case, x=result.prepared(x)[:texts], mask=mask)


@behaviour("batches")
def batches(result: Experiment) -> Iterator[Finding]:
    """One text, one token, and texts that do not change each other."""
    if result.call.layout == "one text":
        yield from _as_a_batch(result)
        return
    B, T = result.sizes.B, result.sizes.T
    probe = Probe(result)
    tried = ((1, T, "one text (B = 1)"), (B, 1, "one token (T = 1)"), (3, 4, "3 texts of 4 tokens"))
    if result.has_fixed_tokens or "image" in result.call.layout:
        tried = (tried[0], (2, T, "2 texts"), (3, T, "3 texts"))
    texts = [text(result, 97, b, t) for b, t, _ in tried]
    for x in (*texts, *texts[-1].split(1)):
        probe.add(x)
    outs = probe.run()
    for number, (out, x, (*_, words)) in enumerate(zip(outs, texts, tried, strict=False)):
        if (fault := _fault_at(probe, number, x, out, words)) is not None:
            yield fault
            return
    together, alone = outs[2], outs[3:]
    if together is not None and not all(close(together[i : i + 1], one) for i, one in enumerate(alone)):
        yield MIXED.found("A text gives another output in a batch of three than alone.")


def _fault_at(probe: Probe, number: int, x: Tensor, out: Tensor | None, words: str) -> Finding | None:
    """What is wrong with one of the calls; `words` say what it was given."""
    result = probe.result
    if failed := probe.failure(number):
        if is_refused(result, failed):
            raise NotChecked(f"it refuses {words}")
        return Finding("", f"It fails for {words}: {one_line(failed)}.", line=failed.line)
    if out is None:
        shapes = [tuple(t.shape) for t in probe.seen.runs[number].outputs[:1]]
        return Finding("", f"For {words} the output has another shape: {shapes[0] if shapes else 'none'}.")
    if is_formula_of(result) and not result.is_formula(out, case_of(result, x)):
        sizes = f"{result.sizes.B} texts of {result.sizes.T} tokens"
        return Finding("", f"For {words} it computes something else than for {sizes}.")
    return None


def _as_a_batch(result: Experiment) -> Iterator[Finding]:
    """A layer of one text that computes something else for each text of a batch, where it takes one."""
    args = ["x" if isinstance(one, str) and one.startswith("x,") else one for one in result.call.args]
    run = result.run(1, calls=[{"args": args, "kwargs": dict(result.call.kwargs)}]).runs[-1:]
    x, width = result.tensors["x"], result.out.shape[-1]
    shape = (*x.shape[:2], width)
    outs = [t for t in (run[0].outputs if run and run[0].failed is None else []) if t.shape == shape]
    if outs and not same(outs[0][:1].to(torch.float64), result.out, CLOSE):
        says = f"It is right for one text, (T, width); for a batch {tuple(x.shape)} it computes something else."
        yield ONE_TEXT.found(says, softmax_line(result.seen))


@behaviour("lengths")
def lengths(result: Experiment) -> Iterator[Finding]:
    """Texts of more tokens than a block, a table or a window in the code may have."""
    if result.has_fixed_tokens or "image" in result.call.layout:
        raise NotChecked("it takes texts of one length")
    probe, has_loops = Probe(result), len(result.seen.forward) > _MANY_CALLS
    texts = [text(result, 57, 2, T) for T in (LENGTHS[:2] if has_loops else LENGTHS)]
    for x in texts:
        probe.add(x)
    if not is_formula_of(result):
        if not result.case.causal:
            raise NotChecked(f"of more than {result.sizes.T} tokens")
        probe.add(texts[0][:, :7])
    built = longer_context(result.built.arguments)
    outs = probe.run(build=built)
    wrong = [i for i, x in enumerate(texts) if not _is_right_at(result, x, outs[i], outs[-1])]
    if wrong:  # float32 decides: the fused kernel errs with a float32 mask and float64 queries of more than 15 tokens
        outs = probe.run(build=built, dtype="float32")
        wrong = [i for i in wrong if not _is_right_at(result, texts[i], outs[i], outs[-1])]
    for i in wrong[:1]:
        right = max((x.shape[1] for x in texts[:i]), default=result.sizes.T)
        yield from _wrong_beyond(result, right, texts[i], outs[i])


def _is_right_at(result: Experiment, x: Tensor, out: Tensor | None, short: Tensor | None) -> bool:
    """Is it the formula; or, where that is not known, the same for the first tokens of a text as for these alone?"""
    if out is None:
        return True  # so many do not fit
    if is_formula_of(result):
        return result.is_formula(out, case_of(result, x), 1e-3)
    return x.shape[1] != LENGTHS[0] or short is None or close(out[:, :7], short)


def longer_context(built: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The arguments of a constructor with room for the longest text, in a configuration too."""
    if built is None:
        return None
    own = {name: longer_context(value) if isinstance(value, dict) else value for name, value in built.items()}
    return {name: LENGTHS[-1] + 9 if name in _LENGTHS and type(own[name]) is int else own[name] for name in own}


def _wrong_beyond(result: Experiment, right: int, x: Tensor, out: Tensor | None) -> Iterator[Finding]:
    """A length at which it is wrong; where the code speaks of a window, that must be one."""
    T = x.shape[1]
    says = f"For {right} tokens it is right; for {T} tokens it computes something else."
    if not names_window(result.text) and not re.search(_OTHER_KEYS, result.text):
        yield LONGER.found(says)
        return
    if out is None or not is_formula_of(result):
        raise NotChecked(f"of more than {right} tokens")
    case, row, column = case_of(result, x), torch.arange(T)[:, None], torch.arange(T)
    numbers = {n for n in result.observation.contents.get("attributes", {}).values() if type(n) is int and 0 < n < T}
    causal = causal_mask(T)
    for n in sorted(numbers):
        near = [row - column < n + more for more in (-1, 0, 1)]
        both = [(row - column).abs() < n // part + more for part in (1, 2) for more in (0, 1)]
        if any(result.is_formula(out, replace(case, mask=one)) for one in (*(causal & each for each in near), *both)):
            return
        if result.is_formula(out, replace(case, mask=torch.where(row < n, causal, column < n))):
            yield OLDEST.found(f"Beyond {n} tokens, the first {n} keys stay in the window, and the newest are dropped.")
            return
    raise NotChecked(f"of more than {right} tokens: the code speaks of a window")
