"""Padding: what is padded changes nothing, and a padded text gives what it gives alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.search import outputs, same
from regard.school.check.behaviours.callers_tensors import CHANGED
from regard.school.check.behaviours.cross_attention import Context, find_context, width_of_context
from regard.school.check.behaviours.padding_argument import PaddingArgument, documentation, find_padding
from regard.school.check.behaviours.probing import CLOSE, Probe, close, one_line, text
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.behaviours.sizes import is_formula_of
from regard.school.check.compare.call_forms import mask_of, random_tensor
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.findings import ADDED
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import mask_shows, stated
from regard.school.check.verdict import Finding, known
from regard.support import vocabulary as words

_WHY = "Padding fills short texts up: no real token may look at it, and the text gives what it gives alone."
_FIX = "scores = scores.masked_fill(padding[:, None, None, :], -torch.inf)  # (B, 1, 1, S): the keys of every text"
IGNORED = known("padding mask ignored", _WHY, _FIX, "mask")
INVERTED = known("padding mask inverted", _WHY, _FIX, "mask")
QUERY_AXIS = known("padding on the query axis", f"{_WHY} Keys are the last axis of the scores.", _FIX, "mask")
ONE_TEXT = known("padding of one text used for all", f"{_WHY} Every text has its own.", _FIX, "mask")
OF_ANOTHER = known("padding of another text used", f"{_WHY} Text 0 has all its heads before text 1.", _FIX, "mask")
FUTURE = known(
    "no causal mask where padding is given",
    "Padding is hidden in addition to the future, not in place of it.",
    "scores = scores.masked_fill(future | padding[:, None, None, :], -torch.inf)",
    "mask",
)
DIFFERS = known("padded text differs from the text alone", _WHY, _FIX, "mask")


@dataclass(frozen=True)
class _Setting:
    """The texts of the probe, and which of their tokens are real; of a context, where the layer takes one."""

    x: Tensor
    keep: Tensor  # (B, S), True = real
    taken: Context | None = None  # the arguments for the context
    context: Tensor | None = None

    @property
    def rows(self) -> Tensor:
        """(B, T): the tokens of x that are real."""
        return self.keep if self.context is None else torch.ones(self.x.shape[:2], dtype=torch.bool)

    def given(self, context: Tensor | None) -> tuple[dict[str, Any], dict[int, Any]]:
        """More arguments of a call, by name and by position."""
        return ({}, {}) if self.taken is None or context is None else self.taken.given(context)

    def alone(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Each text without its padding."""
        for i, real in enumerate(self.keep):
            one = slice(i, i + 1)
            yield (self.x[one, real], None) if self.context is None else (self.x[one], self.context[one, real])


@dataclass(frozen=True)
class _Tried:
    """The output without a mask, with each form of one that runs, and of each text alone."""

    setting: _Setting
    plain: Tensor
    ran: dict[str, Tensor]
    alone: list[Tensor | None]
    changed: frozenset[str] = frozenset()  # the forms that have other numbers after the call

    @property
    def fitting(self) -> list[str]:
        """The forms with which each text gives what it gives alone."""
        texts = list(enumerate(zip(self.setting.rows, self.alone, strict=True)))
        return [
            form for form, out in self.ran.items() if all(close(out[i : i + 1, rows], one) for i, (rows, one) in texts)
        ]


@behaviour("padding", of_functions=True)
def padded_texts(result: Experiment) -> Iterator[Finding]:
    """A padded text beside the same text alone, with every argument for padding."""
    found = find_padding(result)
    if not found:
        raise NotOffered
    for argument in found:
        yield from _padded(result, argument)


def _padded(result: Experiment, argument: PaddingArgument) -> Iterator[Finding]:
    try:
        tried = _tried(result, argument)
    except NotChecked:
        if argument.is_certain or argument.is_mask:
            raise
        raise NotOffered from None
    if tried.fitting:
        yield from _inverted(result, argument.name, tried)
        if tried.changed & set(tried.fitting):
            says = f"After the call, {argument.name} has other numbers than before."
            yield CHANGED["mask"].found(says, _line(result, argument.name))
        return
    named = _named(result, argument.name, tried)
    if argument.is_certain or named.name in (ONE_TEXT.name, OF_ANOTHER.name):  # the formula itself with these
        yield named
    elif argument.is_mask:
        raise NotChecked(f"what {argument.name} means is not known")
    else:
        raise NotOffered


def hides_padding(result: Experiment, masked: Experiment | None) -> bool:
    """Has its mask one number for each token, so that it is wrong only with a mask of another kind?"""
    if masked is None or masked.is_right or not result.is_right:
        return False
    try:
        return bool(_tried(result, PaddingArgument(mask_of(result.subject) or "")).fitting)
    except NotChecked:
        return False


def _tried(result: Experiment, argument: PaddingArgument) -> _Tried:
    """Call it with every form of a mask for padding, with none, and with each text alone."""
    if is_function(result.subject):
        return _tried_function(result, argument)
    if result.call.layout != "batch first" or result.call.mask:
        raise NotChecked("with its layout or mask")
    if result.extension is not None and result.case.causal:
        raise NotChecked("of a causal layer with positions")  # a text alone begins at another position
    is_length = re.search(words.LENGTHS_ARGUMENT, argument.name.lower()) is not None
    probe, setting = Probe(result), _setting(result, is_length, argument.of_context)
    alone = [probe.add(x, *setting.given(context)) for x, context in setting.alone()]
    plain = probe.add(setting.x, *setting.given(setting.context))
    named, at = setting.given(setting.context)
    tried = {}
    for form, mask in argument.forms(setting.keep):
        more_named, more_at = argument.given(mask)
        tried[form] = probe.add(setting.x, {**named, **more_named}, {**at, **more_at})
    outs = probe.run()
    ran = {form: out for form, number in tried.items() if (out := outs[number]) is not None}
    without = outs[plain]
    if not ran or without is None or any(outs[i] is None for i in alone):
        raise _not_checked(probe, argument.name, tried.values() if not ran else ())
    changed = frozenset(form for form in ran if probe.seen.runs[tried[form]].changed)
    return _Tried(setting, without, ran, [outs[i] for i in alone], changed)


def _not_checked(probe: Probe, name: str, masked: Iterable[int]) -> NotChecked:
    """Why padding could not be tried. masked: the calls with a mask, if all of them fail."""
    failed = next((one for i in range(len(probe.calls)) if (one := probe.failure(i))), None)
    says = f"it fails with {name}: {one_line(failed)}" if failed else f"with {name} the shape is another"
    return NotChecked(says, [probe.failure(i) for i in masked])


def _tried_function(result: Experiment, argument: PaddingArgument) -> _Tried:
    """The same of a function, whose queries, keys and values stay as they are: the formula is each text alone."""
    if result.call.layout == "one text" or result.call.mask or not is_formula_of(result):
        raise NotChecked("with its layout or mask")
    B, T, call = result.sizes.B, result.sizes.T, result.call
    keep = torch.arange(T) < torch.tensor([T - 2, T - 1] + [T] * (B - 2))[:B, None]
    forms = dict(argument.forms(keep))
    tensors = {f"padding {form}": mask for form, mask in forms.items()}
    calls = [replace(call, kwargs={**call.kwargs, argument.name: name}).as_json() for name in tensors]
    seen = result.run(1, tensors, calls=calls)
    outs = {form: call.outputs(run.outputs, B, T) for form, run in zip(forms, seen.runs, strict=True)}
    ran = {form: found[0].to(torch.float64) for form, found in outs.items() if found}
    if not ran:
        raise NotChecked(f"it fails with {argument.name}", [run.failed for run in seen.runs])
    mask = keep[:, None, None] & result.case.visible() if result.case.causal else keep[:, None, None]
    right = next(iter(outputs(replace(result.case, mask=mask, causal=False), ())))
    alone: list[Tensor | None] = [right[i : i + 1, rows] for i, rows in enumerate(keep)]
    changed = frozenset(form for form, run in zip(forms, seen.runs, strict=True) if form in ran and run.changed)
    return _Tried(_Setting(result.case.x, keep), result.out, ran, alone, changed)


def _setting(result: Experiment, is_length: bool, of_context: bool) -> _Setting:
    """Text 0 has two tokens of padding, text 1 has one: at the end, or where the future is hidden, at the beginning."""
    B, T, taken = result.sizes.B, result.sizes.T, find_context(result)
    x, keep = text(result, 41, B, T), torch.ones(B, T, dtype=torch.bool)
    keep[0, -2:], keep[1:2, -1:] = False, False
    if taken is not None and not taken.is_named:
        raise NotChecked("no name says what its second argument is")
    if taken is not None and (taken.is_required or of_context):
        return _Setting(x, keep, taken, random_tensor(42, B, T, width_of_context(result)))
    return _Setting(x, keep.flip(1) if result.case.causal and not is_length else keep)


def _inverted(result: Experiment, name: str, tried: _Tried) -> Iterator[Finding]:
    """A mask that hides what a comment or docstring says that it shows, or the other way round; or that is added."""
    documented = documentation(result)
    shows, meanings = mask_shows(documented, name), {"real" in form for form in tried.fitting if "=" in form}
    if shows is not None and meanings == {not shows}:
        does, says = ("hides", "shows") if shows else ("shows", "hides")
        found = f"Where {name} is 1 or True, it {does} a token; the text in the code says that it {says} it."
        yield INVERTED.found(found, _line(result, name))
    is_weak = bool(shows) and not meanings and any("1 = real" in form for form in tried.ran)
    if (
        is_weak
        and "lengths" not in tried.fitting
        and not re.search(ADDED, stated(documented, result.subject.described["name"]))
    ):
        found = f"With {name} of 1 and 0, as the text in the code has it, padding is seen: it is added to the scores."
        yield DIFFERS.found(found, _line(result, name))


def _named(result: Experiment, name: str, tried: _Tried) -> Finding:
    """What is wrong with padding, where no form of the mask gives the text alone."""
    setting, plain, ran, line = tried.setting, tried.plain, tried.ran, _line(result, name)
    rows, keep = setting.rows, setting.keep
    if all(same(out, plain, CLOSE) for out in ran.values()):
        return IGNORED.found(f"With {name} and without it, the output is the same.", line)
    of_padding = [out for out in ran.values() if same(out[rows], plain[rows], CLOSE)]
    if any(not same(out, plain, CLOSE) for out in of_padding):
        return QUERY_AXIS.found(f"{name} changes what padding sees, and not what is seen of it.", line)
    B, heads = len(keep), result.case.num_heads
    real = keep[:, None, None]
    wrong = {
        FUTURE: (real, f"With {name}, tokens see those after them: the causal mask is left out."),
        INVERTED: (~real, f"With {name}, real tokens look at padding, and only at it."),
        ONE_TEXT: (keep[:1, None, None].expand(B, 1, 1, -1), f"Whatever {name} says, the padding of text 0 is hidden."),
        OF_ANOTHER: (keep.repeat(heads, 1).view(B, heads, 1, -1), "Some heads get the padding of another text."),
    }
    base = replace(result.case, x=setting.x, source=setting.context)
    for finding, (mask, says) in wrong.items() if is_formula_of(result) else ():
        hides = base.causal and finding is not FUTURE
        case = replace(base, mask=mask & base.visible() if hides else mask, causal=False)
        if any(same(one[rows], out[rows], CLOSE) for one in outputs(case, ()) for out in ran.values()):
            return finding.found(says, line)
    return DIFFERS.found(f"With {name}, a text with two tokens of padding gives another output than alone.", line)


def _line(result: Experiment, name: str) -> int:
    """Where the argument is used."""
    return line_with(result.subject.source, rf"^(?!\s*(def |if |\"|#|\w+:)).*\b{re.escape(name)}\b(?!\s*[:=])")
