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
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.compare.attempts import is_right_at
from regard.school.check.compare.call_forms import causal_mask
from regard.school.check.compare.constructor_arguments import CONTEXT
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.divergence import latest_divergence
from regard.school.check.explain.mistake_lines import line_with, softmax_line
from regard.school.check.explain.plainness import unnamed_length
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import is_batch_first, names_window
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
ONE_SIZE = known(
    "axes of one size confused",
    "Which axis is which is known by its place: a text may have as many tokens as there are heads, or texts.",
    "q = q.transpose(1, 2)  # whatever its sizes are",
)
SQUEEZED = known(
    "squeeze drops the axis of texts or tokens",
    "squeeze() takes away every axis of size 1, also that of a batch of one text, or of a text of one token.",
    "y.squeeze(1)  # the axis that is meant",
    "out",
)
LONGER = known(
    "wrong for longer texts",
    "A text may be of any length up to context_length: what is cut or taken in blocks must give the same.",
)
SOME_LENGTHS = known(
    "right for some lengths only",
    "A text may be of any length: the last block of it may have fewer tokens than the others.",
    "for start in range(0, T, size):  # and q[:, :, start : start + size], which may be shorter",
)
OLDEST = known(
    "window keeps the oldest tokens",
    "A window ends at the token itself: what leaves it is the oldest key.",
    "k, v = k[:, :, -self.window:], v[:, :, -self.window:]",
)
# What people call attention to some of the keys.
_OTHER_KEYS = r"(?i)sparse|dilat|stride|segment|document|prefix|top_?k|hash|cluster|random|stream|landmark"
_ACROSS = r"(?i)across|between|inter.?sample|(over|of) the batch|batch.?(wise|attention)"
LENGTHS = (17, 33, 65, 131)
FULL = (8, 64)  # tokens of full blocks, and twice as many
_LENGTHS = tuple(name for name in CONTEXT if name != "window")  # a window may be shorter than the text
_LINES = r"(?i)axial|criss|\b(row|column)s?\b|(row|column|height|width)[- _]?(wise|attn|attention)|rows?_|_rows?|cols?_"
_TWO_AXES, _MAP = r"(?i)\b(h|height|rows)\s*,\s*(w|width|cols|columns)\b", 12  # of 3 × 4 tokens
_MANY_CALLS = 150  # of torch for five tokens: it has loops over tokens, and long texts would take seconds


def is_formula_of(result: Experiment) -> bool:
    """Is it the formula and nothing beside it, so that the formula says what is right for other texts?"""
    has_own_mask = result.case.mask is not None and not result.call.mask  # of a window, for one length
    return result.is_right and result.extension is None and not has_own_mask


def case_of(result: Experiment, x: Tensor) -> Case:
    """The case of another text."""
    mask = causal_mask(x.shape[1]) if result.call.mask else None
    x = result.prepared(x)[: 1 if result.call.layout == "one text" else None]
    if not result.takes_qkv:
        return replace(result.case, x=x, mask=mask)
    q, k, v = x.chunk(3, dim=-1)
    return replace(result.case, x=q, qkv=(q, k, v), mask=mask)


@behaviour("batches", of_functions=True)
def batches(result: Experiment) -> Iterator[Finding]:
    """One text, one token, texts that do not change each other, and axes of one size, which must not be confused."""
    if result.call.layout == "one text":
        yield from _as_a_batch(result)
        return
    B, T = result.sizes.B, result.sizes.T
    probe = Probe(result)
    tried = [(1, T, "one text (B = 1)"), (B, 1, "one token (T = 1)"), (3, 4, "3 texts of 4 tokens")]
    if result.has_fixed_tokens or "image" in result.call.layout:
        tried = [tried[0], (2, T, "2 texts"), (3, T, "3 texts")]
    else:
        tried += [(b, t, f"{words} ({b} texts of {t} tokens)") for b, t, words in _of_one_size(result)]
    texts = [text(result, 97, b, t) for b, t, _ in tried]
    for x in (*texts, *texts[2].split(1)):
        probe.add(x)
    outs = probe.run()
    for number, (out, x, (b, t, words)) in enumerate(zip(outs, texts, tried, strict=False)):
        if out is None and (b > 3 or t > max(T, 4)):
            continue  # so many do not fit
        if (fault := _fault_at(probe, number, x, out, words)) is not None:
            yield fault if number < 3 else ONE_SIZE.found(fault.says, fault.line)
            return
    together, alone = outs[2], outs[len(texts) :]
    if together is not None and not all(close(together[i : i + 1], one) for i, one in enumerate(alone)):
        yield MIXED.found("A text gives another output in a batch of three than alone.")


@behaviour("maps that are not square")
def maps(result: Experiment) -> Iterator[Finding]:
    """Images of more columns than rows, of which it must tell one axis from the other."""
    is_of_lines = re.search(_LINES, result.text) is not None  # whose tokens see those of a row or column only
    if not result.call.layout.startswith("image") or "grid" in result.built.roles.values() or is_of_lines:
        raise NotOffered
    probe, x = Probe(result), text(result, 59, 2, _MAP)
    for one in (x, text(result, 60, 2, 9)):
        probe.add(one)
    (out, other), failed = probe.run(), probe.failure(0)
    if other is None:
        raise NotOffered  # it is for maps of one size
    if failed is not None and is_refused(result, failed):
        raise NotChecked("it refuses them")
    if failed is not None and not re.search(_TWO_AXES, result.text):
        raise NotChecked(one_line(failed))
    if failed is not None:
        says = f"It fails for a map of 3 × 4: {one_line(failed)}."
        yield ONE_SIZE.found(says, failed.line)
    elif is_formula_of(result) and (
        out is None or not (result.is_formula(out, case_of(result, x)) or _is_of_rows(result, x, out))
    ):
        yield ONE_SIZE.found("For a map of 3 × 4 it computes something else than for one of another shape.")


def _is_of_rows(result: Experiment, x: Tensor, out: Tensor) -> bool:
    """Do the tokens of each of the three rows look at each other only, or those of each of the four columns?"""
    rows, made = (t.unflatten(1, (3, -1)) for t in (x, out))
    pairs = ((rows, made), (rows.transpose(1, 2), made.transpose(1, 2)))
    return any(result.is_formula(b.flatten(0, 1), case_of(result, a.flatten(0, 1))) for a, b in pairs)


@behaviour("batches", of_functions=True)
def mixed_texts(result: Experiment) -> Iterator[Finding]:
    """Of a layer that nothing explains, and that says that it takes (B, T, width): does one text change another?"""
    if result.call.layout != "batch first" or not is_batch_first(result.text) or re.search(_ACROSS, result.text):
        raise NotOffered
    x, probe = text(result, 97, 3, result.sizes.T), Probe(result)
    other = torch.cat([x[:1], x[1:] + 1.0])
    for one in (x, other, x[:1]):
        probe.add(one)
    together, otherwise, alone = probe.run()
    if together is None or otherwise is None or alone is None:
        raise NotChecked("it fails with another text")
    if not close(together[:1], otherwise[:1]) and not close(together[:1], alone):
        says = "The output for the first text of a batch is another when the other texts are others."
        yield MIXED.found(says, latest_divergence(result.cases, result.seen).line)


def _of_one_size(result: Experiment) -> Iterator[tuple[int, int, str]]:
    """Texts and tokens of which one axis is as long as another; of more tokens, only where all keys are seen."""
    B, T, H = result.sizes.B, result.sizes.T, result.case.num_heads
    pairs = [(3, 3, "as many texts as tokens"), (B, result.case.head_dim, "as many tokens as a head has numbers")]
    pairs += [(B, H, "as many tokens as heads"), (H, T, "as many texts as heads")] if H > 1 else []
    yield from (one for one in pairs if one[1] <= T or not _has_other_keys(result))


def _fault_at(probe: Probe, number: int, x: Tensor, out: Tensor | None, words: str) -> Finding | None:
    """What is wrong with one of the calls; `words` say what it was given."""
    result = probe.result
    if failed := probe.failure(number):
        if is_refused(result, failed):
            raise NotChecked(f"it refuses {words}")
        return Finding("", f"It fails for {words}: {one_line(failed)}.", line=failed.line)
    if out is None:
        shapes = [tuple(t.shape) for t in probe.seen.runs[number].outputs[:1]]
        says = f"For {words} the output has another shape: {shapes[0] if shapes else 'none'}."
        line = line_with(result.subject.source, r"\bsqueeze\(")
        is_squeezed = shapes == [tuple(n for n in (*x.shape[:2], result.out.shape[-1]) if n > 1)]
        return SQUEEZED.found(says, line) if line and is_squeezed else Finding("", says)
    if is_formula_of(result) and not result.is_formula(out, case_of(result, x)):
        sizes = f"{result.sizes.B} texts of {result.sizes.T} tokens"
        return Finding("", f"For {words} it computes something else than for {sizes}.")
    return None


def _as_a_batch(result: Experiment) -> Iterator[Finding]:
    """A layer of one text that computes something else for each text of a batch, where it takes one."""
    if is_function(result.subject) and not is_batch_first(result.text):
        raise NotOffered
    args = [one.removesuffix(", one text") if isinstance(one, str) else one for one in result.call.args]
    run = result.run(1, calls=[{"args": args, "kwargs": dict(result.call.kwargs)}]).runs[-1:]
    x, width = result.tensors[args[0]], result.out.shape[-1]
    shape = (*x.shape[:2], width)
    outs = [t for t in (run[0].outputs if run and run[0].failed is None else []) if t.shape == shape]
    if outs and not same(outs[0][:1].to(torch.float64), result.out, CLOSE):
        says = f"It is right for one text, (T, width); for a batch {tuple(x.shape)} it computes something else."
        yield ONE_TEXT.found(says, softmax_line(result.seen))


@behaviour("lengths", of_functions=True)
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


@behaviour("lengths", of_functions=True)
def some_lengths(result: Experiment) -> Iterator[Finding]:
    """Is it right for two longer texts, and not for this one? Then a block that is not full is lost, or not hidden."""
    if result.has_fixed_tokens or "image" in result.call.layout or result.subject.is_built:
        raise NotOffered
    for T in FULL:
        if is_right_at(result, T) and is_right_at(result, 2 * T):
            says = f"It is right for {T} and for {2 * T} tokens; for {result.sizes.T} it computes something else."
            yield SOME_LENGTHS.found(says, line_with(result.subject.source, r"range\("))
            return


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


def _has_other_keys(result: Experiment) -> bool:
    """Does the code speak of a window, or of attention to some of the keys?"""
    return names_window(result.text) is not None or re.search(_OTHER_KEYS, result.text) is not None


def _wrong_beyond(result: Experiment, right: int, x: Tensor, out: Tensor | None) -> Iterator[Finding]:
    """A length at which it is wrong; where the code speaks of a window, that must be one."""
    T = x.shape[1]
    says = f"For {right} tokens it is right; for {T} tokens it computes something else."
    if name := unnamed_length(result):
        raise NotChecked(f"of more than {right} tokens: what {name} is, no name says")
    if not _has_other_keys(result):
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
