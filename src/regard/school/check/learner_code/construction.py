"""Construction: an instance of a learner's class and a call of it; a configuration is made as its file does.

It is part of the driver, and runs where nothing else of regard can be imported.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, is_typeddict

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:  # there is no protocol.py where this file runs
    from . import protocol

PLAIN = (int, float, bool, str)
MOST_FIELDS = 200  # of a configuration
_IS_CONFIG = re.compile(r"(?i)conf|cfg|args|param|setting|options?$|opts?$|default")


class Config(dict[str, Any]):
    """A configuration, read as config.name or config["name"]."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def parameters_of(function: Any, skip_first: bool = False) -> list[protocol.ArgumentFacts]:
    """The arguments of a class or function; of one that is a configuration, its fields."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip_first:]
    except (TypeError, ValueError):
        return []
    facts = [_argument_facts(p.name, p.default, p.kind.name) for p in parameters]
    if isinstance(function, type):
        for one, p in zip(facts, parameters, strict=True):
            if fields := _fields(_own_config(function, p)):
                one["fields"] = fields
    return facts


def _argument_facts(name: str, default: Any, kind: str) -> protocol.ArgumentFacts:
    is_required = default is inspect.Parameter.empty and not kind.startswith("VAR_")
    known = default if isinstance(default, PLAIN) else None
    return {"name": name, "kind": kind, "required": is_required, "default": known}


def _fields(own: Any) -> list[protocol.ArgumentFacts]:
    """The fields of a configuration with their defaults; nested ones have fields, too."""
    keyword = "KEYWORD_ONLY"
    if isinstance(own, type):
        return [one for one in parameters_of(own) if not one["kind"].startswith("VAR_")]
    values = own if isinstance(own, dict) else getattr(own, "__dict__", {})
    fields = [(n, value) for n, value in values.items() if isinstance(n, str) and n.isidentifier() and n[0] != "_"]
    return [
        {**_argument_facts(name, value, keyword), "fields": _fields(value)}
        if _is_config(value)
        else _argument_facts(name, value, keyword)
        for name, value in fields[:MOST_FIELDS]
    ]


def _is_config(value: Any) -> bool:
    """A dict, a namespace or an object with plain attributes."""
    if isinstance(value, dict):
        return bool(value) and all(isinstance(name, str) for name in value)
    is_other = isinstance(value, (type, nn.Module, Tensor)) or callable(value) or inspect.ismodule(value)
    return not is_other and bool(getattr(value, "__dict__", None))


def _own_config(target: type, p: inspect.Parameter) -> Any:
    """What the learner's file has for an argument: its default, the class of its annotation, or one of a fitting name.

    None where it has nothing.
    """
    if p.default is not p.empty and _is_config(p.default):
        return p.default
    scope = getattr(
        sys.modules.get(target.__module__), "__dict__", getattr(vars(target).get("__init__"), "__globals__", {})
    )
    annotation = scope.get(p.annotation.split(".")[-1]) if isinstance(p.annotation, str) else p.annotation
    if is_typeddict(annotation):  # a dict; one with its keys may be in the file
        named = set(annotation.__annotations__)
        return next((one for one in list(scope.values()) if isinstance(one, dict) and one and set(one) <= named), None)
    if _is_own_class(annotation, target):
        return annotation
    if p.default is not p.empty or not (_IS_CONFIG.search(p.name) or p.name == "c"):
        return None
    return _config_by_name(scope, target)


def _config_by_name(scope: dict[str, Any], target: type) -> Any:
    """What has the name of a configuration: a class, an object, or what a function gives; None where there is none."""
    for name, value in list(scope.items()):
        if not _IS_CONFIG.search(name) or value is target:
            continue
        if _is_own_class(value, target) or _is_config(value):
            return value
        if inspect.isfunction(value) and value.__module__ == target.__module__:
            arguments, sys.argv = sys.argv, sys.argv[:1]  # of a command line, the defaults
            try:
                if _is_config(made := value()):
                    return made
            except (Exception, SystemExit):
                continue
            finally:
                sys.argv = arguments
    return None


def _is_own_class(value: Any, target: type) -> bool:
    """A class of the learner's file that is no layer."""
    return isinstance(value, type) and value.__module__ == target.__module__ and not issubclass(value, nn.Module)


def build(target: Any, arguments: dict[str, Any] | None) -> Any:
    """An instance; an argument that is a mapping becomes a configuration. A copy of what is built already."""
    if arguments is not None:
        own = {}
        arguments = {name: _generator(one) if is_random(one) else one for name, one in arguments.items()}
        if any(isinstance(one, dict) for one in arguments.values()):
            own = {p.name: _own_config(target, p) for p in inspect.signature(target).parameters.values()}
        made = {
            name: _configured(own.get(name), one) if isinstance(one, dict) else one for name, one in arguments.items()
        }
        return target(**made)
    if not isinstance(target, nn.Module):
        return target
    replaced: dict[int, Any] = {}
    for part in target.modules():  # tensors kept from the last run have a history, which deepcopy refuses
        kept = (t for t in vars(part).values() if isinstance(t, Tensor) and not t.is_leaf)
        replaced |= {id(t): t.detach().clone() for t in kept}
    return copy.deepcopy(target, replaced)


def is_random(value: Any) -> bool:
    """Is an argument a source of random numbers: {"random": the name of the function of NumPy that makes it}?"""
    return isinstance(value, dict) and [*value] == ["random"]


def _generator(value: dict[str, Any]) -> Any:
    return np.random.RandomState(0) if value["random"] == "RandomState" else np.random.default_rng(0)


def _configured(own: Any, values: dict[str, Any]) -> Any:
    """The learner's own configuration with these values; one of ours where the file has none."""
    if isinstance(own, type):
        taken = inspect.signature(own).parameters
        some = {name: value for name, value in values.items() if name in taken}
        made = own(**some)
        is_made = (
            {one.name for one in dataclasses.fields(own) if not one.init} if dataclasses.is_dataclass(own) else set()
        )
        others = {name: value for name, value in values.items() if name not in taken and name not in is_made}
        return _with_values(made, others)
    if own is None or isinstance(own, dict):
        merged = {**(own or {}), **values}
        for name, value in merged.items():
            if isinstance(value, dict):
                merged[name] = _configured((own or {}).get(name), values.get(name, {}))
        return Config(merged)
    return _with_values(copy.copy(own), values)


def _with_values(made: Any, values: dict[str, Any]) -> Any:
    for name, value in values.items():
        if isinstance(value, dict):
            value = _configured(getattr(made, name, None), value)
        with contextlib.suppress(AttributeError, TypeError):  # a property is made of other fields
            object.__setattr__(made, name, value)
    return made


def argument_of(tensor: Tensor, job: protocol.DriverJob) -> Any:
    """A tensor as a call gets it: a copy, in the dtype of the job, an array, or lists of numbers."""
    if tensor.is_floating_point():
        tensor = tensor.to(getattr(torch, job.get("dtype", "float64")))
    if job.get("strided") and tensor.dim() > 1:
        tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
    if job.get("lists"):
        return tensor.tolist()
    return tensor.numpy().copy(order="K") if job.get("numpy") else tensor.clone()


def tensor_names(call: protocol.CallJob) -> list[str]:
    """The names of the tensors that a call is given."""
    return [name for one in (*call["args"], *call.get("kwargs", {}).values()) for name in _names_in(one)]


def _names_in(given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if "object" in given:
        return []
    parts: list[Any] = given if isinstance(given, list) else [given.get("linear", []), *given.get("dict", {}).values()]
    return [name for one in parts for name in _names_in(one)]


def call_with(
    subject: Any,
    call: protocol.CallJob,
    tensors: dict[str, Any],
    previous: Any,
    lists: dict[str, Any] | None = None,
) -> Any:
    """Call it; what the parts of a call may be, protocol.CallJob says. lists: those that calls of a job share."""

    def value(one: Any) -> Any:
        if isinstance(one, str):
            return tensors[one]
        if isinstance(one, list):
            return tuple(map(value, one))
        if "dict" in one:
            return {name: value(part) for name, part in one["dict"].items()}
        if "list" in one and lists is not None:
            return lists.setdefault(one["list"], [])
        if "shared dict" in one and lists is not None:
            return lists.setdefault(f"dict {one['shared dict']}", {})
        if "object" in one and lists is not None:
            return _shared_object(subject, one, lists)
        if "linear" in one:
            return lambda x: x @ tensors[one["linear"]]
        return previous[one["cache"]] if "cache" in one else one["value"]

    called = getattr(subject, call["method"]) if "method" in call else subject
    return called(*map(value, call["args"]), **{name: value(one) for name, one in call.get("kwargs", {}).items()})


def _shared_object(subject: Any, one: dict[str, Any], shared: dict[str, Any]) -> Any:
    """An instance of a class of the learner's file; the same for every call that names it so."""
    name = f"object {one['object']} {one['key']}"
    if name not in shared:
        scope = inspect.unwrap(type(subject).forward).__globals__
        shared[name] = scope[one["object"]](**one["arguments"])
    return shared[name]


def _stacked(values: list[Any]) -> Tensor | None:
    """Numbers in lists as one tensor; None where they are no numbers, or not as many in each list."""
    parts: list[Any] = []
    for one in values:
        if isinstance(one, (float, np.floating)):
            parts.append(torch.tensor(float(one), dtype=torch.float64))
        else:
            parts.append(_stacked(one) if isinstance(one, list) else one)
    is_whole = all(
        isinstance(one, Tensor) and (isinstance(v, list) or not one.dim()) for v, one in zip(values, parts, strict=True)
    )
    return torch.stack(parts) if parts and is_whole and len({one.shape for one in parts}) == 1 else None


def returned_tensors(result: Any) -> list[Tensor]:
    """The tensors of a result, in order."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, list) and (stacked := _stacked(result)) is not None:
        return [stacked]
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in returned_tensors(part)]
    if isinstance(result, dict):
        return returned_tensors(list(result.values()))
    if type(result).__module__ == "numpy" and type(result).__name__ == "ndarray" and result.dtype.kind in "fiub":
        return [torch.tensor(result)]
    if isinstance(result, nn.Module) or callable(result):
        return []
    return returned_tensors(
        [one for one in getattr(result, "__dict__", {}).values() if isinstance(one, (Tensor, tuple, list))]
    )
