"""Cross-attention: queries of x, keys and values of another text, of another length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case
from regard.school.check.behaviours.probing import Probe, call_arguments, close, one_line, qkv_inputs, text
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.behaviours.sizes import is_formula_of
from regard.school.check.compare.call_forms import random_tensor
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import hiding_line, line_with
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import names_two_lengths
from regard.school.check.verdict import Finding, known
from regard.support import vocabulary as words

_WHY = "In cross-attention every token of x asks, and the tokens of the context answer: W_key and W_value read them."
_FIX = "q, k, v = self.W_query(x), self.W_key(context), self.W_value(context)"
IGNORED = known("context ignored", _WHY, _FIX, "keys")
SWAPPED = known("roles of x and context swapped", _WHY, _FIX, "queries")
VALUES = known("values of x instead of the context", _WHY, _FIX, "values")
KEYS = known("keys of x instead of the context", _WHY, _FIX, "keys")
CAUSAL = known(
    "causal mask over the context",
    "The context is there as a whole before the first token of x: nothing of it is in the future.",
    "scores = q @ k.mT / head_dim**0.5  # without the mask",
    "mask",
)
CUT = known("context cut to the length of x", "A context has a length of its own.", _FIX, "keys")
JOINED = known("x joined to the context", _WHY, _FIX, "keys")
CONFUSED = known("key and value confused", "Keys are made of key, and values of value.", step="values")
LENGTH = known(
    "context of another length fails",
    "A context has a length of its own: T for the queries, S for keys and values.",
    "S = context.shape[1]  # and k = self.W_key(context).view(B, S, num_heads, head_dim)",
    "keys",
)
# Where another text takes the place of x, if it is given: {0} and {1} are the names of both.
_INSTEAD = (
    r"\b{1} if {0} is None else {0}\b|\b{0} if {0} is not None else {1}\b|\b{0} or {1}\b|if {0} is None:\s+{0} = {1}\b"
)
_FLAGS = ("causal", "is_causal")
_JOINS = r"(?i)latent|perceiver|prefix|joint|register|concat"


@dataclass(frozen=True)
class Context:
    """The arguments that take another text than x."""

    positions: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    is_required: bool = False
    is_named: bool = True  # do names say which argument is the context?

    @property
    def is_pair(self) -> bool:
        """Has it an argument for the keys and one for the values, in this order?"""
        return len(self.positions) == 2

    def given(self, context: Tensor) -> tuple[dict[str, Any], dict[int, Any]]:
        """More arguments of a call, by name and by position."""
        return dict.fromkeys(self.names, context), dict.fromkeys(self.positions, context)


def find_context(result: Experiment) -> Context | None:
    """Which arguments are the context; None where the layer takes none."""
    names = [name.lower() for name in call_arguments(result)]
    given = [i for i, one in enumerate(result.call.args) if isinstance(one, str) and one.partition(",")[0] == "x"]
    pair = [i for i in given if i < len(names) and names[i] in words.KEYS_AND_VALUES]
    if len(given) > 2 and len(pair) == 2:
        return Context(tuple(sorted(pair, key=lambda i: names[i])), is_required=True)  # k, v; key, value
    if len(given) == 2 and given[1] < len(names):
        first, second = (is_context(names[i]) for i in given)
        return Context((given[0] if first and not second else given[1],), is_required=True, is_named=first != second)
    return _optional_context(result)


def _optional_context(result: Experiment) -> Context | None:
    """A context that need not be given."""
    passed, own = result.call.kwargs, [p["name"] for p in result.subject.described["call"]]
    others = [name for name in own[len(result.call.args) :] if name not in passed]
    if optional := tuple(name for name in others if name.lower() in words.KEYS_AND_VALUES):
        return Context(names=optional) if len(optional) == 2 else None
    found = [name for name in others if re.fullmatch(words.CONTEXT_ARGUMENT, name.lower()) and name != "kv"]
    if found:
        return Context(names=tuple(found[:1]))
    instead = [name for name in others if re.search(_INSTEAD.format(name, call_arguments(result)[0]), result.text)]
    return Context(names=tuple(instead[:1]), is_named=False) if instead else None


def is_context(name: str) -> bool:
    """Does the name of an argument speak of another text?"""
    return re.fullmatch(f"{words.CONTEXT_ARGUMENT}|{words.CONTEXT_ARGUMENT_TOO}", name) is not None


def width_of_context(result: Experiment) -> int:
    """The width of the vectors that the keys are made of."""
    key = result.reading.projections.get("W_key")
    return result.tensors["x"].shape[-1] if key is None else key.weight.shape[1]


@behaviour("cross-attention", of_functions=True)
def cross_attention(result: Experiment) -> Iterator[Finding]:
    """Keys and values of another text, of another length."""
    if is_function(result.subject):
        yield from _of_function(result)
        return
    context = find_context(result)
    if context is None or not result.is_right:
        raise NotOffered
    if result.call.layout not in ("batch first", "one text") or result.norm is not None or result.call.mask:
        raise NotChecked("with its layout, norm or mask")
    yield from _of_layer(result, context)


def _of_layer(result: Experiment, context: Context) -> Iterator[Finding]:
    """A layer with two contexts that are longer than x, and with one that is as long."""
    B, T = 1 if result.call.layout == "one text" else result.sizes.B, result.sizes.T
    x, width = text(result, 31, B, T), width_of_context(result)
    long, other, even = (random_tensor(seed, B, S, width) for seed, S in ((32, T + 3), (33, T + 3), (34, T)))
    probe = Probe(result)
    passed = [one[0] if result.call.layout == "one text" else one for one in (long, other, even)]
    by_name, by_position = _without_flags(result)
    for one in passed:
        names, positions = context.given(one)
        probe.add(x, {**by_name, **names}, {**by_position, **positions})
    pair = dict(zip(context.positions, passed, strict=False))
    apart = probe.add(x, by_name, {**by_position, **pair}) if context.is_pair else None
    outs = probe.run()
    if outs[0] is None:
        yield from _fails(result, context, probe, outs, x, even)
    elif not is_formula_of(result):
        if close(outs[0], outs[1]):
            yield IGNORED.found("Another context gives the same output.")
    else:
        wrong = list(_compared(result, context, outs[0], x, long))
        yield from wrong
        if not wrong and apart is not None and (out := outs[apart]) is not None:
            case = replace(result.case, x=x, causal=False, qkv=_projected(result, x, long, other))
            if not _is(result, out, case):
                yield CONFUSED.found("Where key and value are two texts, it computes something else.", _made(result))


def _without_flags(result: Experiment) -> tuple[dict[str, Any], dict[int, Any]]:
    """Where a flag says that it is causal, for the check alone passes it: it is not, by name and by position."""
    on, off = {"value": True}, {"value": False}
    names = {name: off for name, one in result.call.kwargs.items() if one == on and name in _FLAGS}
    pairs = zip(call_arguments(result), result.call.args, strict=False)
    return names, {i: off for i, (name, one) in enumerate(pairs) if one == on and name in _FLAGS}


def _of_function(result: Experiment) -> Iterator[Finding]:
    """A function of q, k and v with more keys than queries."""
    is_more = any(name.partition(",")[0] not in ("q", "k", "v") for name in result.call.names)  # a mask, or lengths
    if not result.takes_qkv or result.case.causal or is_more or not is_formula_of(result):
        raise NotOffered
    (B, T, width), S = result.case.x.shape, result.sizes.T + 3
    qkv = [random_tensor(seed, B, length, width) for seed, length in ((31, T), (32, S), (33, S))]
    seen = result.run(1, qkv_inputs(result, *qkv))
    if failed := seen.failure:
        yield _of_other_length(result, f"With {S} keys and {T} queries it fails: {one_line(failed)}.", failed.line)
        return
    everything = torch.ones(T, S, dtype=torch.bool)
    case = replace(result.case, x=qkv[0], qkv=tuple(qkv), mask=everything)
    if not any(result.is_formula(out, case) for out in result.outputs(seen)):
        yield _of_other_length(result, f"With {S} keys and {T} queries it computes something else.", 0, is_sure=True)


def _of_other_length(result: Experiment, says: str, line: int, is_sure: bool = False) -> Finding:
    """A mistake where the code speaks of two lengths; who passes q, k and v may mean those of one text."""
    return LENGTH.found(says, line, is_warning=not is_sure and not names_two_lengths(result.text))


def _fails(
    result: Experiment, context: Context, probe: Probe, outs: list[Tensor | None], x: Tensor, even: Tensor
) -> Iterator[Finding]:
    """It gives no output of the length of x with a context of another length."""
    failed, as_long = probe.failure(0), outs[2]
    shapes = [t.shape[:2] for t in probe.seen.runs[0].outputs[:1]] if probe.seen.runs else []
    if failed is None and (len(x), x.shape[1] + 3) in shapes and (context.is_named or _says_length_of_x(result)):
        yield SWAPPED.found("The output has as many tokens as the context: that asks, and x answers.", _made(result))
    elif failed is None or as_long is None:
        says = f"it fails with a context: {one_line(failed)}" if failed else "its output has another length"
        raise NotChecked(says, [failed])
    elif is_formula_of(result) and (wrong := list(_compared(result, context, as_long, x, even))):
        yield from wrong
    else:
        says = f"With a context of {x.shape[1] + 3} tokens and x of {x.shape[1]} it fails: {one_line(failed)}."
        yield _of_other_length(result, says, failed.line, is_sure=not context.is_pair)


def _says_length_of_x(result: Experiment) -> bool:
    """Does the text give x and the output the same axes, as in "words (B, T, d), regions (B, R, d) -> (B, T, d)"?"""
    axes = rf"\b{re.escape(call_arguments(result)[0])}\W{{0,6}}[(\[](\w+),\s*(\w+)\b"
    return (
        re.search(rf"{axes}[\s\S]{{0,200}}?(->|→|returns?|out(put)?)\W{{0,6}}[(\[]\1,\s*\2\b", result.text) is not None
    )


def _causal(result: Experiment, context: Context) -> Iterator[Finding]:
    """A causal layer may be given a context that goes along with x; that of an encoder does not."""
    is_encoded = any(re.match(r"mem|enc", name.lower()) for name in context.names)
    if context.is_required or is_encoded or not result.case.causal:
        yield CAUSAL.found("The first tokens of x do not see the end of the context.", hiding_line(result.seen))


def _joined(result: Experiment, context: Context) -> Iterator[Finding]:
    """Latents, a prefix, or a memory of the texts before are joined to x on purpose."""
    if context.is_required and not re.search(_JOINS, result.text):
        yield JOINED.found("Keys and values are made of x and the context together.", _made(result))


def _confused(result: Experiment, out: Tensor, right: Case, x: Tensor, context: Tensor) -> Finding | None:
    """Queries, keys and values of the wrong texts."""
    swapped, back = (context, x, context), ("W_key", "W_query", "W_value")
    made_of = (
        (VALUES, "Keys are made of the context, and values of x.", (x, context, x), QKV),
        (KEYS, "Values are made of the context, and keys of x.", (x, x, context), QKV),
        (SWAPPED, "The keys ask, and the queries answer: the product is k @ q.mT.", swapped, QKV),
        (SWAPPED, "The keys ask, and the queries answer: the product is k @ q.mT.", swapped, back),
    )
    for mistake, says, texts, names in made_of:
        qkv = _projected(result, *texts, names=names)
        if qkv is not None and _is(result, out, replace(right, source=None, qkv=qkv)):
            return mistake.found(says, _made(result))
    return None


def _projected(result: Experiment, *texts: Tensor, names: tuple[str, ...] = QKV) -> tuple[Tensor, ...] | None:
    """Queries, keys and values of three texts; None where their widths do not fit."""
    if not result.case.projections:
        return texts
    projections = [result.case.projections[name] for name in names]
    pairs = list(zip(projections, texts, strict=True))
    return tuple(one(t) for one, t in pairs) if all(p.weight.shape[1] == t.shape[-1] for p, t in pairs) else None


def _compared(result: Experiment, context: Context, out: Tensor, x: Tensor, long: Tensor) -> Iterator[Finding]:
    """The output beside the formula with that context, and with what people make of it."""
    right = replace(result.case, x=x, source=long, causal=False)
    if _is(result, out, right):
        return
    everything = torch.ones(x.shape[1], long.shape[1], dtype=torch.bool)
    is_causal = any(_is(result, out, replace(right, mask=everything.tril(shift))) for shift in (0, 3))
    has_width, confused = x.shape[-1] == long.shape[-1], _confused(result, out, right, x, long)
    joined = [torch.cat(pair, dim=1) for pair in ((x, long), (long, x))] if has_width else []
    if is_causal and context.is_named:
        yield from _causal(result, context)
    elif context.is_named and has_width and _is(result, out, replace(right, source=None, causal=result.case.causal)):
        yield IGNORED.found("Keys and values are made of x; another context gives the same output.", _made(result))
    elif confused is not None:
        yield confused
    elif x.shape[1] < long.shape[1] and _is(result, out, replace(right, source=long[:, : x.shape[1]])):
        yield CUT.found("Of a context that is longer than x, only as many tokens are used as x has.", _made(result))
    elif any(_is(result, out, replace(right, source=one)) for one in joined):
        yield from _joined(result, context)
    elif not context.is_named:
        raise NotChecked("no name says what its second argument is")
    else:
        yield Finding("", "With a context of its own text and length it computes something else.", step="keys")


def _is(result: Experiment, out: Tensor, case: Case) -> bool:
    try:
        return result.is_formula(out, case)
    except (RuntimeError, ValueError):  # such as a joined text of another width
        return False


def _made(result: Experiment) -> int:
    """The line that makes the keys."""
    return line_with(result.subject.source, r"(?i)^\s*(\w+_)?(k|keys?|kv)(_\w+)?\b(,\s*\w+)*\s*=.*\(")
