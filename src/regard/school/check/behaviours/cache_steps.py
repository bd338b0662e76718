"""A cache, token by token: a text in many parts beside the whole text, however the cache is passed or kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.behaviours.kv_cache import CACHES, FLAGS, WRONG_CACHE, are_passed_on
from regard.school.check.behaviours.probing import CLOSE
from regard.school.check.behaviours.registry import NotOffered, behaviour
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.learner_code.protocol import CallJob, Run
from regard.school.check.learner_code.text_hints import names_window
from regard.school.check.verdict import Finding
from regard.support import vocabulary as words

_STEPS = r"(generate_|decode_|forward_)?(step|decode|one|cached|incremental)(_one|_forward|_token)?"
_ROOM = 32  # tokens that a cache is built for
_ROOM_NAMES = r"max|len|size|tokens|ctx|slots|capacity"


@dataclass(frozen=True)
class CacheWay:
    """How a cache is passed: by which argument, and as what."""

    flags: dict[str, Any]
    name: str
    kind: str  # start, returned, list, shared dict, object
    made: dict[str, Any] = field(default_factory=dict)  # the object

    def given(self, tokens: int, key: str) -> dict[str, Any]:
        """What is passed with a part, after so many tokens of the text of this name."""
        if self.kind == "returned":
            return {**self.flags, **({self.name: {"cache": -1}} if tokens else {})}
        value = {"value": tokens} if self.kind == "start" else {self.kind: key}
        return {**self.flags, self.name: {**self.made, "key": key} if self.made else value}


@behaviour("cache")
def cached_step_by_step(result: Experiment) -> Iterator[Finding]:
    """Is every token the same when the tokens before it come from a cache, one step after the other?"""
    if not result.case.causal or not result.is_right or result.call.layout != "batch first":
        raise NotOffered
    if names_window(result.text):
        raise NotOffered
    tried = [_compared(result, way, (2, 1, 1, 1)) for way in _ways(result)]
    tried += [_stepped(result, name) for name in _step_methods(result)]
    known = [one for one in tried if one is not None]
    if not known:
        raise NotOffered
    for is_same, line in known:
        if not is_same:
            yield WRONG_CACHE.found(
                "Token by token, with a cache, the output is another than for the whole text.", line
            )
            return


def _ways(result: Experiment) -> Iterator[CacheWay]:
    """How a cache may be passed: what was returned, a list, a dict, an object of the file's; or where a part begins."""
    described = result.subject.described["call"]
    names = [p["name"] for p in described[len(result.call.args) :] if p["default"] is None or p["name"] in words.STARTS]
    flags = {p["name"]: {"value": True} for p in described if p["name"] in FLAGS}
    others = [name for name in names if name not in result.call.kwargs]
    named = [name for name in others if name in CACHES or "cache" in name.lower()]
    starts = [name for name in others if name in words.STARTS]
    for start in starts[:1]:
        yield CacheWay(flags, start, "start")
    for name in (named or [one for one in others if one not in starts])[:2]:
        yield from [CacheWay(flags, name, "returned")] if name in named else []
        yield from (CacheWay(flags, name, kind) for kind in ("list", "shared dict"))
        yield from (CacheWay(flags, name, "object", made) for made in _cache_objects(result))


def _cache_objects(result: Experiment) -> Iterator[dict[str, Any]]:
    """Caches that the file has a class for, with values for what it is built with."""
    sizes = result.sizes
    for node in _classes(result.subject.source):
        if "cache" not in node.name.lower() or node.name == result.subject.described["name"]:
            continue
        made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        required = made.args.args[1 : len(made.args.args) - len(made.args.defaults)] if made else []
        values = {}
        for one in required:
            name = one.arg.lower()
            number = sizes.B if "batch" in name or name in ("b", "bs") else sizes.head_dim
            number = sizes.num_heads if "heads" in name else number
            values[one.arg] = _ROOM if re.search(_ROOM_NAMES, name) and "head" not in name else number
        yield {"object": node.name, "arguments": values}


def _classes(source: str) -> list[ast.ClassDef]:
    try:
        return [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _compared(result: Experiment, way: CacheWay, parts: Sequence[int]) -> tuple[bool, int] | None:
    """Is the text in parts the same as the whole text? None where it cannot be passed so, or nothing is kept."""
    x = result.tensors["x"]
    texts = {"text": x, "other": torch.cat([x[:, : parts[0]].flip(0, 1), x[:, parts[0] :]], 1)}
    tensors: dict[str, Tensor] = {}
    calls: list[CallJob] = [result.call.as_json()]
    for key, one in texts.items():
        done = 0
        for size in parts:
            name = f"{key} from {done}"
            tensors[name] = one[:, done : done + size].clone()
            args = [name if given == "x" else given for given in result.call.args]
            calls.append({"args": args, "kwargs": {**result.call.kwargs, **way.given(done, key)}, "fresh": not done})
            done += size
    runs = result.run(1, tensors, calls=calls).runs
    if way.kind == "returned" and len(runs) > 2 and are_passed_on([way.name], runs[1], runs[2]):
        return None
    return _judged(result, runs, parts, calls)


def _judged(
    result: Experiment, runs: Sequence[Run], parts: Sequence[int], calls: Sequence[CallJob]
) -> tuple[bool, int] | None:
    outs = [next((t for t in run.outputs if t.dim() == 3), None) for run in runs if run.failed is None]
    if len(outs) < 1 + 2 * len(parts) or any(one is None for one in outs):
        return None
    found = [one for one in outs if one is not None]
    whole, text, other = found[0], found[1 : 1 + len(parts)], found[1 + len(parts) :]
    if [one.shape[1] for one in text] != list(parts) or whole.shape != result.out.shape:
        return None
    is_own = any("object" in one for call in calls for one in call["kwargs"].values() if isinstance(one, dict))
    if same(torch.cat(text[1:], 1), torch.cat(other[1:], 1), CLOSE) and not is_own:
        return None  # the tokens before are not seen at all: of a cache that the file makes itself, that is wrong
    line = line_with(result.subject.source, r"cat\(|cache\w*\[.*\]\s*=|append\(")
    return same(torch.cat(text, 1), whole, CLOSE), line


def _step_methods(result: Experiment) -> list[str]:
    """Methods that take one token."""
    methods = result.observation.contents.get("methods", ())
    return [name for name in methods if re.fullmatch(_STEPS, name)][:1]


def _stepped(result: Experiment, method: str) -> tuple[bool, int] | None:
    """A text token by token, by a method of the layer."""
    x, T = result.tensors["x"], result.sizes.T
    resets = [n for n in result.observation.contents.get("methods", ()) if re.match(r"(reset|clear|init_?)\w*", n)]
    begins: list[list[Any]] = [[{"value": result.sizes.B}], []] if resets else [[]]
    is_passed = re.search(rf"def {method}\(self, \w+[^,)]*, \w*(state|cache|past|kv)\w*", result.subject.source)
    for begin in begins:
        tensors, calls = {}, [result.call.as_json()]
        numbers = []
        for key, one in {"text": x, "other": torch.cat([x[:, :1].flip(0, 1) + 1, x[:, 1:]], 1)}.items():
            for t in range(T):
                if resets and not t:
                    calls.append({"method": resets[0], "args": begin, "kwargs": {}, "fresh": True})
                tensors[f"{key} at {t}"] = one[:, t : t + 1].clone()
                numbers.append(len(calls))
                fresh = not t and not resets
                state = [{"cache": -1} if t else {"value": None}] if is_passed else []
                calls.append({"method": method, "args": [f"{key} at {t}", *state], "kwargs": {}, "fresh": fresh})
        runs = result.run(1, tensors, calls=calls).runs
        if len(runs) == len(calls) and (found := _judged(result, [runs[0], *(runs[i] for i in numbers)], (1,) * T, [])):
            return found[0], line_with(result.subject.source, rf"def {method}\b")
    return None
