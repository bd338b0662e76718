"""Configuration: what a constructor takes must change the layer, and every value of it must be right."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.behaviours.probing import CLOSE, Probe, close, one_line, text
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.behaviours.sizes import case_of, is_formula_of
from regard.school.check.compare.call_forms import mask_argument
from regard.school.check.compare.constructor_arguments import HEADS, Setting, settings_of, takes
from regard.school.check.compare.experiment import Experiment, experiment, known_weights
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.config_reads import config_reads
from regard.school.check.learner_code.protocol import Observation
from regard.school.check.learner_code.subject import InsideSubject, is_class
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import HEAD_DIM

IGNORED = known("argument is ignored", "Who sets an argument expects another layer; take what nobody reads away.")
INVERTED_FLAG = known("causal flag inverted", "Causal means that no token sees a later one.", step="mask")
INVERTED_BIAS = known("bias flag inverted", "Who asks for biases gets them, and who asks for none gets none.")
CONFUSED = known(
    "repeat and interleave confused",
    "With grouped queries, query head h uses key head h // (num_heads / num_kv_heads).",
    "k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)",
    "keys",
)
_GROUPS = 2  # query heads for each key head
# What arguments and fields are called.
_CAUSAL = ("causal", "is_causal", "use_causal_mask", "kausal", "causale")
_NAMES = {
    "bias": ("bias", "use_bias", "qkv_bias", "attention_bias", "attn_bias"),
    "window": ("sliding_window", "window_size", "local_window", "attention_window", "attn_window"),
    "scale": ("scale", "qk_scale", "softmax_scale", "attn_scale", "attention_scale"),
    "alpha": ("alpha", "lora_alpha"),
}


@behaviour("arguments")
def arguments_are_used(result: Experiment) -> Iterator[Finding]:
    """Another bias, head_dim, number of heads, window, scale or base makes another layer."""
    built = result.built.arguments
    settings = promised(result) if is_class(result.subject) else ()
    tried = [pair for one in settings if (pair := (one, _values(result, one)))[1]]
    if not built or not tried:
        raise NotOffered
    for one, values in tried:
        name, jobs = one.path[-1], [with_value(built, one.path, value) for value in values]
        seen = [result.run(build=each) for each in jobs]
        if any(each.failure is not None for each in seen):
            continue
        line = line_with(result.subject.source, rf"(\.|\[.|\(.*)\b{name}\b") or line_with(result.subject.source, name)
        # An argument may be for the numbers that the parameters begin with.
        if _are_equal(seen) and _are_equal([result.run(build=each, state=False) for each in jobs]):
            yield IGNORED.found(f"With {name}={values[0]} and with {name}={values[1]} it is the same layer.", line)
        elif name in _NAMES["bias"]:
            yield from _biases(result, name, seen, line)


def _biases(result: Experiment, name: str, seen: Sequence[Observation], line: int) -> Iterator[Finding]:
    """Biases that are there where none were asked for; seen: without and with them."""
    if _count(seen[0]) > _count(seen[1]):
        says = f"With {name}=False it has {_count(seen[0])} parameters, with {name}=True {_count(seen[1])}."
        yield INVERTED_BIAS.found(says, line)
    elif kept := _kept_biases(result, seen[0]):
        yield IGNORED.found(f"With {name}=False, {' and '.join(kept)} still has a bias, and others have none.", line)


def promised(result: Experiment) -> Iterator[Setting]:
    """The arguments; of a configuration what this layer reads; of one that is no whole model's, all of attention."""
    described, source = result.subject.described, result.subject.source
    settings = settings_of(described, source)
    is_of_model = any(one.named in ("vocab_size", "num_layers", "d_ff") for one in settings)
    for one in settings:
        if {one.key, one.path[-1]} & {*result.request.own} or one.is_made:
            continue
        owner, inside = one.path[0], ".".join(one.path[1:])
        is_read = not inside or inside in config_reads(result.text, owner)
        is_unread = inside not in config_reads(source, owner)
        if is_read or (is_unread and not is_of_model and _is_of_attention(one, result.text)):
            yield one


def _is_of_attention(one: Setting, text: str) -> bool:
    """Is a setting for attention and nothing else? A number of key heads is for attention that shares them."""
    if one.named == "num_kv_heads":
        return re.search(r"(?i)group|gqa|kv", text) is not None
    if one.named == "theta":
        return re.search(r"(?i)rotary|\brope|rotate|\.cos\(", text) is not None
    is_known = one.named in ("head_dim", "num_heads", "causal") or one.path[-1] in (*_NAMES["window"], *_NAMES["scale"])
    return is_known or re.search("qkv|att", one.path[-1]) is not None


def _values(result: Experiment, one: Setting) -> tuple[Any, ...]:
    """Two values with which a layer must differ; () where nothing is known of an argument."""
    name, sizes = one.path[-1], result.sizes
    is_field = not takes(result.subject.described, (name,))
    value = value_at(result.built.arguments or {}, one.path)
    if name in _NAMES["bias"] and (is_field or name != "qkv_bias"):  # of qkv_bias, the parameters tell
        return (False, True) if is_field or one.required or isinstance(one.default, bool) else ()
    if name in HEAD_DIM and type(value) is int:
        return value, value + 2
    if one.named in ("num_heads", "num_kv_heads") and result.is_right and type(value) is int:
        return (sizes.num_heads, 1) if sizes.num_heads > 1 else ()
    return _values_for_scores(result, one)


def _values_for_scores(result: Experiment, one: Setting) -> tuple[Any, ...]:
    """The same of what changes the scores alone: the base of the positions, a window, a scale."""
    name, sizes = one.path[-1], result.sizes
    has_own_turns = {"cos", "sin"} <= {call.name for call in result.seen.recorded}
    is_turned = has_own_turns and all(name.startswith("x") for name in result.call.names)
    is_part = re.search(r"(?i)partial|pct|percent|rotary_(n?dims?|fraction)", result.text)  # too few to differ
    if one.named == "theta" and is_turned and sizes.head_dim > 3 and not is_part:
        return 10000.0, 50.0
    is_masked = mask_argument(result.subject.described) is not None  # the caller may make the window
    if name in _NAMES["window"] and not is_masked and type(one.default) is not bool and not result.has_fixed_tokens:
        return sizes.T, 2
    if name in _NAMES["scale"]:
        return (False, True) if isinstance(one.default, bool) else (0.25, 0.75)
    if name in _NAMES["alpha"] and re.search(r"(?i)lora|low.?rank|adapter", result.subject.source):
        return 4.0, 12.0
    return ()


def value_at(built: Mapping[str, Any], path: Sequence[str]) -> Any:
    """A value among the arguments of a constructor, or in a configuration; None where it is not given."""
    inner = built.get(path[0])
    return value_at(inner if isinstance(inner, dict) else {}, path[1:]) if len(path) > 1 else inner


def _are_equal(seen: Sequence[Observation]) -> bool:
    """Has it the same parameters and the same output in both runs?"""
    return _made(seen[0]) == _made(seen[1]) and all(
        torch.equal(a, b) for a, b in zip(seen[0].runs[0].outputs, seen[1].runs[0].outputs, strict=True)
    )


def _kept_biases(result: Experiment, without: Observation) -> list[str]:
    """Of queries, keys and values: those that have a bias where none was asked for, unless all have one."""
    weights = [name for name in result.reading.used if name.endswith(".weight") and "out" not in name]
    made = {name for name, _ in _made(without)}
    kept = [name.removesuffix(".weight") for name in weights if f"{name.removesuffix('weight')}bias" in made]
    is_q_k_v = [name for name in kept if re.search(r"(?i)q|k|v", name) and not re.search(r"(?i)out|o_proj|wo", name)]
    return is_q_k_v if 0 < len(is_q_k_v) < 3 and len(weights) > 2 else []


def _count(seen: Observation) -> int:
    """The numbers in all parameters."""
    return sum(math.prod(one["shape"]) for one in seen.contents.get("parameters", ()))


def _made(seen: Observation) -> list[tuple[str, list[int]]]:
    facts = (*seen.contents.get("parameters", ()), *seen.contents.get("buffers", ()))
    shapes = [("out", list(t.shape)) for t in seen.runs[0].outputs]
    return [(one["name"], one["shape"]) for one in facts] + shapes


@behaviour("causal flag", of_functions=True)
def causal_flag(result: Experiment) -> Iterator[Finding]:
    """With causal=True the future is hidden, with causal=False it is not; in a configuration and in a call, too."""
    if result.call.mask or isinstance(result.subject, InsideSubject):
        raise NotOffered
    name, outs = _with_flag(result)
    pairs = [pair for pair in outs if pair is not None]
    if len(pairs) < 2:
        raise NotChecked("it fails with another value")
    sees = [not close(one[:, :-1], other[:, :-1]) for one, other in pairs]
    line = line_with(result.subject.source, rf"\b{name}\b.*(\)|=|\])\s*$|=.*\b{name}\b")
    if sees == [True, False]:
        yield INVERTED_FLAG.found(f"With {name}=True the future is seen, and with {name}=False it is hidden.", line)
    elif close(pairs[0][0], pairs[1][0]):
        does = "seen" if sees[0] else "hidden"
        yield IGNORED.found(f"With {name}=True and with {name}=False the future is {does}.", line)
    elif sees == [False, True] and is_formula_of(result):
        right = replace(case_of(result, text(result, 71, result.sizes.B, result.sizes.T)), causal=True)
        if not result.is_formula(pairs[0][0], right):
            yield Finding(
                "", f"With {name}=True it computes something else than the formula with the future hidden.", line=line
            )


def _with_flag(result: Experiment) -> tuple[str, list[list[Tensor] | None]]:
    """The name of the flag, of a call or else of the constructor, and the outputs with True and with False."""
    built, both = result.built.arguments, (True, False)
    flags = [p["name"] for p in result.subject.described["call"] if isinstance(p["default"], bool)]
    if name := next((name for name in flags if name in _CAUSAL), ""):
        return name, [_twice(result, built, {name: {"value": value}}) for value in both]
    paths = [one.path for one in promised(result) if _is_flag(one)] if built else []
    if not built or not paths:
        raise NotOffered
    return paths[0][-1], [_twice(result, with_value(built, paths[0], value), {}) for value in both]


def _is_flag(one: Setting) -> bool:
    return one.path[-1] in _CAUSAL and (one.required or len(one.path) > 1 or isinstance(one.default, bool))


def _twice(result: Experiment, built: Mapping[str, Any] | None, given: Mapping[str, Any]) -> list[Tensor] | None:
    """The outputs for two texts that differ in the last token; None where it fails."""
    x, probe = text(result, 71, result.sizes.B, result.sizes.T), Probe(result)
    for one in (x, torch.cat([x[:, :-1], -x[:, -1:]], dim=1)):
        probe.add(one, given)
    outs = [out for out in probe.run(build=None if built is None else dict(built)) if out is not None]
    return outs if len(outs) == 2 else None


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


@behaviour("shared key heads")
def shared_key_heads(result: Experiment) -> Iterator[Finding]:
    """Where it ran with as many key heads as heads: with half of them, each is that of two heads side by side."""
    path, heads = _path_of_key_heads(result), result.case.num_heads
    fewer = with_value(result.built.arguments or {}, path, heads // _GROUPS)
    seen = result.run(1, build=fewer, state=False)
    if seen.failure is not None:
        raise NotChecked(f"with {path[-1]}={heads // _GROUPS} it fails: {one_line(seen.failure)}")
    weights = known_weights(seen.contents, 5)
    shapes = {p["name"]: p["shape"] for p in result.observation.contents.get("parameters", ())}
    if any(math.prod(shapes[n]) not in (t.numel(), _GROUPS * t.numel()) for n, t in weights.items() if n in shapes):
        raise NotChecked("its queries, keys and values are in one weight")
    out = result.outputs(result.run(1, _states(weights), build=fewer))
    repeated, tiled = (_with_all(weights, shapes, heads // _GROUPS, one) for one in (True, False))
    expected, wrong = (result.outputs(result.run(1, _states(one))) for one in (repeated, tiled))
    if not out or not expected or not wrong:
        raise NotChecked("its output has another shape")
    if same(out[0], expected[0], CLOSE):
        return
    if not same(out[0], wrong[0], CLOSE):
        raise NotChecked("it computes something else")
    says = f"With {heads // _GROUPS} key heads, head 0 and head 1 use different ones: they are repeated as a whole."
    yield CONFUSED.found(says, line_with(result.subject.source, r"\.(repeat|expand|tile|cat)\("))


def _path_of_key_heads(result: Experiment) -> tuple[str, ...]:
    built, heads = result.built.arguments, result.case.num_heads
    settings = list(promised(result)) if is_class(result.subject) else []
    paths = [one.path for one in settings if result.built.roles.get(one.key) == "num_kv_heads"]
    if not built or len(paths) != 1 or value_at(built, paths[0]) != heads or heads % _GROUPS:
        raise NotOffered
    return paths[0]


def _states(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"state.{name}": value for name, value in weights.items()}


def _with_all(
    weights: dict[str, Tensor], shapes: dict[str, list[int]], kv_heads: int, side_by_side: bool
) -> dict[str, Tensor]:
    """The weights of as many key heads as heads, each repeated side by side, or all of them one after the other."""
    full = {}
    for name, t in weights.items():
        if name in shapes and math.prod(shapes[name]) != t.numel():
            by_head = t.unflatten(0, (kv_heads, -1))
            times = (_GROUPS, *(1 for _ in by_head.shape[1:]))
            t = (by_head.repeat_interleave(_GROUPS, 0) if side_by_side else by_head.repeat(times)).flatten(0, 1)
        full[name] = t
    return full
