"""Repeated calls: what a layer computes depends on its input and its weights, not on the calls before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.school.check.behaviours.kv_cache import FLAGS
from regard.school.check.behaviours.probing import Probe, call_arguments, close, one_line, text
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.compare.call_forms import MASK, mask_forms
from regard.school.check.compare.experiment import Experiment
from regard.school.check.verdict import Finding, known
from regard.support import vocabulary as words

STATE = known(
    "state kept between calls",
    "A layer is called with text after text, of other lengths and in other batches; what it computes depends on its "
    "input and its weights alone.",
    "# make it new in forward, of the text at hand, or pass it as an argument",
)
_ENDS = r"(reset|clear)(?!_param)"  # methods that end a state
_NOT_A_MASK = (*words.CACHES, *words.CACHES_TOO, *words.KEY_SOURCES)


@behaviour("repeated calls")
def repeated_calls(result: Experiment) -> Iterator[Finding]:
    """Is a call the same after calls with other lengths and texts as that of a new layer?"""
    is_asked = any(p["name"] in FLAGS and not p["default"] for p in result.subject.described["call"])
    methods = result.observation.contents.get("methods", ())
    if not is_asked and any(re.match(_ENDS, name) for name in methods):
        raise NotOffered  # it keeps a state, and says how to end it
    steps, probe = _steps(result), Probe(result)
    fresh = [probe.add(x, mask) for x, mask in steps]
    used = [probe.add(x, mask, used=i > 0) for i, (x, mask) in enumerate(steps)]
    outs = probe.run()
    if outs[0] is None:
        raise NotChecked("it fails with another text")
    for i, (one, other) in enumerate(zip(fresh, used, strict=True)):
        if outs[one] is None or close(outs[one], outs[other]):
            continue
        b, t = steps[i][0].shape[:2]
        failed = probe.failure(other)
        does = f"fails: {one_line(failed)}" if failed else "gives another output than that of a new layer"
        says = f"Call {i + 1} of one layer, with {b} texts of {t} tokens, {does}."
        yield STATE.found(says, _kept_line(result) or (failed.line if failed else 0))
        return


def _steps(result: Experiment) -> list[tuple[Tensor, dict[str, Any]]]:
    """The calls: texts of other sizes, one with masks, one with a cache, none of which must act later; the first again.

    A call without a cache is a whole text, whatever a call with one has kept.
    """
    B, T = result.sizes.B, result.sizes.T
    texts = [text(result, 101 + i, b, t) for i, (b, t) in enumerate([(B, T), (B, T + 4), (3, T - 2), (B, T)])]
    steps: list[tuple[Tensor, dict[str, Any]]] = [(x, {}) for x in texts]
    few = torch.arange(T).lt(T - 1).expand(B, T)
    masks = [one[0] if result.call.layout == "one text" else one for one in (few.clone(), few.flip(1))]
    steps += [(texts[-1], {name: mask}) for name in _optional(result) for mask in masks]
    if (masked := result.masked) is not None:
        forms = mask_forms(torch.eye(T, dtype=torch.bool), torch.float64, B)
        steps += [(texts[-1], {name: forms[masked.call.mask] for name in masked.call.kwargs if name in MASK})]
    flags = [p["name"] for p in result.subject.described["call"] if p["name"] in FLAGS and p["default"] is False]
    steps += [(texts[1], {name: {"value": True}}) for name in flags]
    return [*steps, (texts[0], {})]


def _optional(result: Experiment) -> list[str]:
    """Arguments without a value that may be masks."""
    names = [p["name"] for p in result.subject.described["call"] if not p["required"] and p["default"] is None]
    known = [name for name in call_arguments(result) if name in names and name not in _NOT_A_MASK]
    return [] if result.call.mask else known[:2]


def _kept_line(result: Experiment) -> int:
    """The first line outside of the constructor that keeps something in the layer."""
    try:
        nodes = ast.parse(result.subject.source).body
    except SyntaxError:
        return 0
    own = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == result.subject.described["name"]]
    methods = [node for one in own for node in one.body if isinstance(node, ast.FunctionDef)]
    lines = [
        node.lineno
        for method in methods
        if method.name != "__init__" and not re.match(_ENDS, method.name)
        for node in ast.walk(method)
        if isinstance(node, (ast.Assign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if ast.unparse(target).startswith(("self.", "(self."))
    ]
    return min(lines, default=0)
