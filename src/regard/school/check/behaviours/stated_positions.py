"""Stated positions: what a layer says of distance, a penalty of far keys or a window, beside what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.school.check.behaviours.probing import Probe, close, text
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import names_window, stated_of
from regard.school.check.verdict import Finding, known

FAR = known(
    "far keys favoured",
    "ALiBi lowers a score by the distance of its tokens, so that near ones count more.",
    "scores = scores - slopes * (i - j)",
    "mask",
)
OFF_BY_ONE = known(
    "window off by one",
    "A window of n tokens holds the token itself and the n − 1 before it, unless the text says otherwise.",
    "visible = (i - j >= 0) & (i - j < window)",
    "mask",
)
LATER = known(
    "window sees the future",
    "A window of the tokens before a token ends at the token itself.",
    "visible = (i - j >= 0) & (i - j < window)",
    "mask",
)
_AROUND = r"(?i)\b(after|following|next|both|around|either|each side|neighbou?r|symmetric|future)"
_PENALTY = re.compile(r"(?i)alibi|slopes?\b|recency|penali[sz]|linear bias").search
_WINDOW = 3  # a window that is shorter than the text
# How a text says that the token itself is one of the window's, or comes beside them; W is the name of the argument.
_MINUS, _TOKENS = r"`*\s*[-−]\s*1\)?", r"(tokens?|keys?|positions?|before|previous|preceding|earlier|past)\b"
_WITHIN = (
    rf"\bW{_MINUS}`* (\w+ )?{_TOKENS}",
    r"\bi`*\s*[-−]\s*`*W`*\s*\+\s*1\b",
    rf"\bW`* (\w+ )?{_TOKENS},? \(?(including|counting|incl\.?|with) (itself|the (token|query|current)|its own)",
)
_BESIDE = (
    rf"(itself|its own \w+),? (and|plus) (the |its )?(last |previous |preceding )?`*W`* {_TOKENS}",
    rf"\bW`* {_TOKENS}( \w+)?,? (and|plus|as well as) itself",
    r"(?<!\()\bi`*\s*[-−]\s*`*W`*\s*(\.\.|…|,|≤|<=|to\b)",  # "(i - W, i]" is without its start
)


@behaviour("distance", of_functions=True)
def near_keys_count_more(result: Experiment) -> Iterator[Finding]:
    """A bias that is said to lower the scores of far keys, and raises them."""
    bias, H = result.case.bias, result.case.num_heads
    learned = [n for n, t in result.tensors.items() if n.startswith("state.") and t.numel() in (1, H)]
    if bias is None or learned or not _PENALTY(result.text):
        raise NotOffered
    rows = [row[: i + 1] for head in bias for i, row in enumerate(head) if i > 1]
    if all(bool((row[:-1] - row[1:] > 1e-6).all()) for row in rows):
        says = "What is added to a score grows with the distance: the further back a key lies, the more it counts."
        yield FAR.found(says, line_with(result.subject.source, r"slope\w*.*\*|\*.*slope"))


@behaviour("window", of_functions=True)
def window_as_stated(result: Experiment) -> Iterator[Finding]:
    """A token sees as many tokens as the text says, counted with a small window."""
    given = result.built.arguments or _plain(result.call.kwargs)
    names = [n for n, v in _sizes(given) if names_window(n) and type(v) is int]
    said = {name: stated_of(result.subject.source, result.subject.described["name"], name) for name in names}
    sizes = [(name, size) for name in names if (size := _stated_size(said[name], name))]
    is_banded = is_function(result.subject) and result.case.mask is not None
    if len(sizes) != 1 or result.subject.is_built:
        raise NotOffered
    name, size = sizes[0]
    if not (result.case.causal or is_banded):
        yield from _sees_later(result, said[name])
        return
    x = text(result, 83, 1, _WINDOW + 3)
    probe = Probe(result)
    for changed in (None, *range(_WINDOW + 3)):
        other = x.clone()
        if changed is not None:
            other[:, changed] *= -1.5
        probe.add(other, {name: {"value": _WINDOW}} if is_banded else None)
    outs = probe.run() if is_banded else probe.run(build=_with(given, name))
    if any(out is None for out in outs):
        raise NotChecked("it fails with a small window")
    sees = [not close(_last(out), _last(outs[0])) for out in outs[1:]]
    seen = sum(sees)
    if seen != size and abs(seen - _WINDOW) < 2 and all(sees[-seen:]):  # else it sees others, too, such as a sink
        says = f"With {name}={_WINDOW} a token sees {seen} tokens, itself one of them; the text says {size}."
        yield OFF_BY_ONE.found(
            says, line_with(result.subject.source, rf"(self\.|\b){name}\b.*[<>]|[<>].*\b{name}\b|tri[ul]")
        )


def _sees_later(result: Experiment, said: str) -> Iterator[Finding]:
    """A window of the tokens before, as the text says, that shows the tokens after it, too."""
    if not re.search(r"(?i)\b(before|previous|preceding|earlier|past)\b", said) or re.search(_AROUND, said):
        raise NotOffered
    x, probe = text(result, 83, 1, _WINDOW + 3), Probe(result)
    for one in (x, torch.cat((x[:, :-1], -x[:, -1:]), dim=1)):
        probe.add(one)
    out, otherwise = probe.run()
    if out is not None and otherwise is not None and not close(out[:, :-1], otherwise[:, :-1]):
        says = "Its text speaks of the tokens before a token; those after it are seen, too."
        yield LATER.found(says, line_with(result.subject.source, r"abs\(|[<>]"))


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values that a function is given by name."""
    return {name: one["value"] for name, one in given.items() if isinstance(one, dict) and "value" in one}


def _last(out: Tensor | None) -> Tensor | None:
    return None if out is None else out[:, -1]


def _sizes(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments by name, and those of a configuration among them."""
    for name, value in arguments.items():
        yield from _sizes(value) if isinstance(value, dict) else [(name, value)]


def _with(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """The arguments with a small window."""
    small = {n: _with(v, name) if isinstance(v, dict) else v for n, v in arguments.items()}
    return {n: _WINDOW if n == name else v for n, v in small.items()}


def _stated_size(said: str, name: str) -> int:
    """How many tokens a window of three shows, as the text says; 0 where it says nothing, or both."""
    said = re.sub(rf"`?\b(self\.)?{re.escape(name)}\b`?", "W", said)
    for given, others in re.findall(r"W`*\s*[=:]\s*(\d+)\D{0,40}itself and (?:the )?(?:last |previous )?(\d+)\b", said):
        said += " W - 1 tokens" if int(others) == int(given) - 1 else " itself and W tokens" if others == given else ""
    found = [size for size, ways in ((_WINDOW, _WITHIN), (_WINDOW + 1, _BESIDE)) if _any(ways, said)]
    return found[0] if len(found) == 1 else 0


def _any(ways: tuple[str, ...], said: str) -> bool:
    return any(re.search(f"(?i){way}", said) for way in ways)
