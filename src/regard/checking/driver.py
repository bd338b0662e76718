"""The driver runs a learner's code and returns numbers, never a verdict.

It stands alone, on torch: a grader sends this file into the process in which a submission runs, where nothing else of
regard can be imported. A job says what to build, which weights to put in, what to call; tensors travel beside it by name.
"""

import copy
import inspect
import sys
import traceback
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MOST_CALLS = 600  # recorded torch calls of one experiment
MOST_NUMBERS = 200_000  # of a recorded tensor
LONGEST = 2000  # characters of a message


def describe(module: ModuleType) -> dict[str, Any]:
    """The classes and functions that a file defines, in order, with the arguments that they take."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    classes = [one for one in own if isinstance(one, type)]
    functions = [one for one in own if inspect.isfunction(one)]
    return {"classes": [describe_class(one) for one in classes], "functions": [describe_function(f) for f in functions]}


def describe_class(one: type) -> dict[str, Any]:
    """A class: what it is built with, and what it is called with."""
    called = getattr(one, "forward", None) if issubclass(one, nn.Module) else getattr(one, "__call__", None)
    return {
        "name": one.__name__,
        "line": _line(one),
        "is_module": issubclass(one, nn.Module),
        "build": _parameters(one),
        "call": _parameters(called, skip_first=True),
    }


def describe_function(function: Any) -> dict[str, Any]:
    """A function and its arguments."""
    return {"name": function.__name__, "line": _line(function), "call": _parameters(function)}


def run(target: Any, job: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Do one job with a class, a function or an instance; return what was seen, as JSON and as tensors by name.

    The job: build (arguments, or none for what is built already), state (put the tensors state.NAME into parameters),
    dtype, train, seed, calls (lists of names of tensors, and options), record (torch calls of the first call).
    """
    seen: dict[str, Any] = {"calls": [], "recorded": []}
    given: dict[str, Tensor] = {}
    torch.manual_seed(job.get("seed", 0))
    files = files_of(target)
    try:
        subject = build(target, job["build"]) if job.get("build") is not None else copy.deepcopy(target)
        if isinstance(subject, nn.Module):
            seen |= _contents(subject)
            _prepare(subject, job, tensors)
    except Exception as error:
        return seen | {"failed": failure(error, files)}, given
    for number, call in enumerate(job.get("calls", ())):
        torch.manual_seed(job.get("seed", 0) + number)
        recorder = Recorder(files) if job.get("record") and not number else None
        arguments = {name: tensors[name].clone() for name in {*call["args"], *call.get("kwargs", {}).values()}}
        one: dict[str, Any] = {"outputs": [], "changed": []}
        try:
            with torch.set_grad_enabled(bool(job.get("grad"))):
                result = _call(subject, call, arguments, recorder)
            for i, value in enumerate(_flat(result)):
                given[f"out.{number}.{i}"] = value.detach().clone()
                one["outputs"].append(f"out.{number}.{i}")
            one["returned"] = type(result).__name__
        except Exception as error:
            one["failed"] = failure(error, files)
        one["changed"] = [name for name, value in arguments.items() if not _equal(value, tensors[name])]
        seen["calls"].append(one)
        if recorder is not None:
            for i, (name, line, value) in enumerate(recorder.calls):
                seen["recorded"].append({"name": name, "line": line})
                given[f"recorded.{i}"] = value
    return seen, given


def build(target: Any, arguments: dict[str, Any]) -> Any:
    """An instance; an argument that is a mapping becomes a configuration, read as config.name or config["name"]."""
    values = {name: Config(value) if isinstance(value, dict) else value for name, value in arguments.items()}
    return target(**values)


class Config(SimpleNamespace):
    """Settings by attribute and by key."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(**values)

    def __getitem__(self, name: str) -> Any:
        try:
            return vars(self)[name]
        except KeyError:
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dictionary."""
        return vars(self).get(name, default)


class Recorder(TorchFunctionMode):
    """Every torch function that the learner's files call, directly or through torch: its name, line and result."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files = files
        self.calls: list[tuple[str, int, Tensor]] = []
        self.busy = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.busy or len(self.calls) >= MOST_CALLS:
            return result
        self.busy = True
        try:
            changed = args[0] if getattr(func, "__name__", "") == "__setitem__" else result
            for value in _flat(changed):
                if value.numel() <= MOST_NUMBERS:
                    name = getattr(func, "__name__", "").strip("_")
                    self.calls.append((name, self._line(), value.detach().clone()))
        finally:
            self.busy = False
        return result

    def _line(self) -> int:
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return int(frame.f_lineno)
            frame = frame.f_back
        return 0


def failure(error: BaseException, files: set[str]) -> dict[str, Any]:
    """An exception as data: its type, message and the last line of the learner's that it passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return {
        "type": type(error).__name__,
        "message": str(error)[:LONGEST],
        "line": frames[-1].lineno if frames else 0,
        "function": frames[-1].name if frames else "",
    }


def files_of(target: Any) -> set[str]:
    """The files in which a class (or an instance's class, or a function) was written, without torch's own."""
    target = inspect.unwrap(target) if inspect.isfunction(target) else target
    if inspect.isfunction(target):
        return {target.__code__.co_filename}
    classes = (target if isinstance(target, type) else type(target)).__mro__
    inside = [type(part) for part in target.modules()] if isinstance(target, nn.Module) else []
    found = set()
    for one in {*classes, *inside}:
        if not one.__module__.startswith(("torch", "builtins", "typing", "abc")):
            found |= {f.__code__.co_filename for f in vars(one).values() if inspect.isfunction(f)}
    return found


def _contents(module: nn.Module) -> dict[str, Any]:
    """What a module holds: parameters, buffers, tensors that torch does not know of, and plain attributes."""
    owners = {f"{path}.{name}".lstrip("."): type(part).__name__ for path, part in module.named_modules() for name in part._parameters}
    return {
        "parameters": [
            {"name": name, "shape": list(p.shape), "owner": owners.get(name, ""), "trains": p.requires_grad}
            for name, p in module.named_parameters(remove_duplicate=False)
        ],
        "buffers": [{"name": name, "shape": list(b.shape)} for name, b in module.named_buffers()],
        "saved": list(module.state_dict()),
        "loose": [
            {"name": f"{path}.{name}".lstrip("."), "shape": list(value.shape)}
            for path, part in module.named_modules()
            for name, value in vars(part).items()
            if isinstance(value, Tensor)
        ],
        "attributes": {
            name: value for name, value in vars(module).items() if isinstance(value, (int, float, bool)) and name[0] != "_"
        },
        "dropouts": [
            {"name": name, "p": part.p} for name, part in module.named_modules() if isinstance(part, nn.Dropout)
        ],
    }


def _prepare(module: nn.Module, job: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    module.to(getattr(torch, job.get("dtype", "float64")))
    if job.get("state"):
        with torch.no_grad():
            for name, parameter in module.named_parameters(remove_duplicate=False):
                value = tensors.get(f"state.{name}")
                if value is not None and value.shape == parameter.shape:
                    parameter.copy_(value)
    module.train(bool(job.get("train")))


def _call(subject: Any, call: dict[str, Any], tensors: dict[str, Tensor], recorder: Recorder | None) -> Any:
    args = [tensors[name] for name in call["args"]]
    kwargs = {name: tensors[value] for name, value in call.get("kwargs", {}).items()} | call.get("options", {})
    if recorder is None:
        return subject(*args, **kwargs)
    with recorder:
        return subject(*args, **kwargs)


def _flat(result: Any) -> list[Tensor]:
    """The tensors of a result, in order."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in _flat(part)]
    if isinstance(result, dict):
        return _flat(list(result.values()))
    return []


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _parameters(function: Any, skip_first: bool = False) -> list[dict[str, Any]]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return [
        {
            "name": p.name,
            "kind": p.kind.name,
            "required": p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD),
            "default": p.default if isinstance(p.default, (int, float, bool, str)) else None,
        }
        for p in parameters[skip_first:]
    ]


def _line(one: Any) -> int:
    try:
        return inspect.getsourcelines(one)[1]
    except (OSError, TypeError):
        return 0
