"""Configuration: what a constructor takes must change the layer, and every value of it must be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.behaviours.sizes import is_formula_of
from regard.school.check.compare.constructor_arguments import HEADS, has_config, takes
from regard.school.check.compare.experiment import Experiment, experiment
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.protocol import ArgumentFacts, Observation
from regard.school.check.learner_code.subject import InsideSubject
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import HEAD_DIM

IGNORED = known("argument is ignored", "Who sets an argument expects another layer; take what nobody reads away.")
INVERTED_FLAG = known("causal flag inverted", "Causal means that no token sees a later one.", step="mask")
_CAUSAL = ("causal", "is_causal", "use_causal_mask", "kausal", "causale")
_BIASES = ("bias", "use_bias")  # of qkv_bias, the parameters tell


@behaviour("arguments")
def arguments_are_used(result: Experiment) -> Iterator[Finding]:
    """Another bias or head_dim makes another layer."""
    built = result.built.arguments
    described = result.subject.described
    is_class = not result.subject.is_built and not isinstance(result.subject, InsideSubject)
    if not is_class or not built or has_config(described) or not takes(described, (*_BIASES, *HEAD_DIM)):
        raise NotOffered
    for p in described.get("build", ()):
        name: str = p["name"]
        values: tuple[Any, ...] = ()
        if name in _BIASES and (p["required"] or isinstance(p["default"], bool)):
            values = (False, True)
        elif name in HEAD_DIM and name in built:
            values = (built[name], built[name] + 2)
        if values and name not in result.request.own and _is_ignored(result, built, name, values):
            says = f"With {name}={values[0]} and with {name}={values[1]} it is the same layer."
            yield IGNORED.found(says, line_with(result.subject.source, rf"\b{name}\b"))


def _is_ignored(result: Experiment, built: Mapping[str, Any], name: str, values: tuple[Any, ...]) -> bool:
    """Has it the same parameters and the same output with both values?"""
    seen = [result.run(build={**built, name: value}) for value in values]
    if any(one.failure is not None for one in seen):
        return False
    first, second = (_made(one) for one in seen)
    return first == second and all(
        torch.equal(a, b) for a, b in zip(seen[0].runs[0].outputs, seen[1].runs[0].outputs, strict=True)
    )


def _made(seen: Observation) -> list[tuple[str, list[int]]]:
    facts = (*seen.contents.get("parameters", ()), *seen.contents.get("buffers", ()))
    shapes = [("out", list(t.shape)) for t in seen.runs[0].outputs]
    return [(one["name"], one["shape"]) for one in facts] + shapes


@behaviour("causal flag")
def causal_flag(result: Experiment) -> Iterator[Finding]:
    """With causal=True the future is hidden, with causal=False it is not; also in a configuration."""
    built, described = result.built.arguments, result.subject.described
    is_own = result.subject.is_built or isinstance(result.subject, InsideSubject) or not is_formula_of(result)
    paths = [] if is_own or not built else list(_flags(described.get("build", ())))
    if built is None or not paths or result.call.mask or any(name in result.request.own for name in paths[0]):
        raise NotOffered
    outs = [result.outputs(result.run(build=with_value(built, paths[0], value))) for value in (True, False)]
    if not all(outs):
        raise NotChecked("it fails with another value")
    hidden, plain = (replace(result.case, causal=causal) for causal in (True, False))
    hides = [result.is_formula(out[0], hidden) for out in outs]
    shows = [result.is_formula(out[0], plain) for out in outs]
    yield from _wrong_flag(result, paths[0][-1], hides, shows)


def _wrong_flag(result: Experiment, name: str, hides: list[bool], shows: list[bool]) -> Iterator[Finding]:
    """What is wrong with a flag, from what is hidden and seen with True and with False."""
    line = line_with(result.subject.source, rf"\b{name}\b.*(\)|=|\])\s*$")
    if hides == [False, True] and shows == [True, False]:
        yield INVERTED_FLAG.found(f"With {name}=True the future is seen, and with {name}=False it is hidden.", line)
    elif all(shows) or all(hides):
        does = "seen" if all(shows) else "hidden"
        yield IGNORED.found(f"With {name}=True and with {name}=False the future is {does}.", line)


def _flags(arguments: Sequence[ArgumentFacts]) -> Iterator[tuple[str, ...]]:
    """Arguments and fields of configurations that say whether the future is hidden."""
    for one in arguments:
        yield from [(one["name"],)] if one["name"] in _CAUSAL and isinstance(one["default"], bool) else []
        yield from ((one["name"], *path) for path in _flags(one.get("fields", ())))


def with_value(built: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The arguments of a constructor with another value for one, or for a field of a configuration.

    >>> with_value({"cfg": {"dim": 8}}, ("cfg", "causal"), True)
    {'cfg': {'dim': 8, 'causal': True}}
    """
    inner = with_value(built.get(path[0]) or {}, path[1:], value) if len(path) > 1 else value
    return {**built, path[0]: inner}


@behaviour("one head")
def one_head(result: Experiment) -> Iterator[Finding]:
    """With num_heads=1 it is attention too."""
    described, sizes = result.subject.described, result.sizes
    if result.subject.is_built or not takes(described, HEADS) or sizes.num_heads == 1 or sizes.kv_heads:
        raise NotOffered
    if any(name in HEADS for name in result.request.own) or not is_formula_of(result):
        raise NotOffered
    square = result.case.x.shape[-1] == result.case.width
    single = replace(sizes, num_heads=1, head_dim=sizes.head_dim + 1)
    other = experiment(result.subject, single, 3, result.request, square=square, masked=bool(result.call.mask), most=0)
    if isinstance(other, Experiment) and not other.is_explained and not other.problem:
        yield Finding("", f"With {sizes.num_heads} heads it is right; with one head it computes something else.")
