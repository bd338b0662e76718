"""The driver runs a learner's code and returns numbers, never a verdict.

It stands alone, on torch: a grader sends this file into the process in which a submission runs, where nothing else of
regard can be imported. Jobs and reports are those of protocol.py; tensors travel beside them by name.
"""

from __future__ import annotations

import copy
import inspect
import sys
import traceback
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:  # there is no protocol.py where this file runs
    from . import protocol

MOST_CALLS = 600  # recorded torch calls of one experiment
MOST_NUMBERS = 200_000  # of a recorded tensor
MOST_INSIDE = 200  # modules of a model that are described
LARGE = 1e9  # in place of infinity, where a job asks for that
LONGEST = 2000  # characters of a message
HIDES_IN_EXAMPLE = -9000.0  # as in support/hidden_scores.py
DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "dropout_", "dropout1d", "dropout2d")


def describe(module: ModuleType) -> protocol.FileDescription:
    """The layers and functions that a file defines, in order, with the arguments that they take."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    named = [one for one in own if inspect.isfunction(one) and one.__name__.isidentifier()]  # a lambda has no name
    return {
        "classes": [describe_class(one) for one in own if isinstance(one, type) and issubclass(one, nn.Module)],
        "functions": [describe_function(one) for one in named],
    }


def describe_class(one: type) -> protocol.Description:
    """A class: what it is built with, and what it is called with."""
    called = getattr(one, "forward" if issubclass(one, nn.Module) else "__call__", None)
    return {"name": one.__name__, "build": _parameters(one), "call": _parameters(called, skip_first=True)}


def describe_function(function: Any) -> protocol.Description:
    """A function and its arguments."""
    return {"name": function.__name__, "call": _parameters(function)}


def run(target: Any, job: protocol.DriverJob, tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Do one job with a class, a function or an instance; return what was seen, and tensors by name."""
    seen: dict[str, Any] = {"calls": [], "recorded": [], "dropped": []}
    returned: dict[str, Tensor] = {}
    torch.manual_seed(0)
    recorder = Recorder(files_of(target), job, seen, returned)
    try:
        with recorder:
            subject = _built(target, job.get("build"))
            if job.get("inside"):
                subject = subject.get_submodule(job["inside"])
        recorder.files |= files_of(subject)
        seen["built"] = len(seen["recorded"])
        if isinstance(subject, nn.Module):
            seen.update(_contents(subject))
            _prepare(subject, job, tensors)
    except Exception as error:
        seen["failed"] = failure(error, recorder.files)
        return seen, returned
    previous: Any = None
    for number, call in enumerate(job.get("calls", ())):
        torch.manual_seed(number if job.get("seeds") else 0)
        names = [*call["args"], *call.get("kwargs", {}).values()]
        given = {name: _argument(tensors[name], job) for name in names if isinstance(name, str)}
        one: dict[str, Any] = {"outputs": [], "after": {}}
        recorder.is_on = not number
        try:
            mode = Devices(recorder.files, subject, given) if job.get("devices") else recorder
            with torch.set_grad_enabled(bool(job.get("gradients"))), warnings.catch_warnings(), mode:
                warnings.simplefilter("ignore")
                previous = _call(subject, call, given, previous)
            if isinstance(mode, Devices):
                seen["elsewhere"] = mode.fault
            outputs = _flat(previous)
            for i, value in enumerate(outputs):
                returned[f"out.{number}.{i}"] = value.detach().clone()
                one["outputs"].append(f"out.{number}.{i}")
            if job.get("gradients") and not number:
                seen["without_gradient"] = _without_gradient(subject, outputs)
        except Exception as error:
            one["failed"] = failure(error, recorder.files)
        for i, (name, value) in enumerate(given.items()):  # whoever asked compares them with what was given
            returned[f"after.{number}.{i}"] = value if isinstance(value, Tensor) else torch.from_numpy(value)
            one["after"][name] = f"after.{number}.{i}"
        seen["calls"].append(one)
    return seen, returned


class Config(dict[str, Any]):
    """A configuration, read as config.name or config["name"]."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Recorder(TorchFunctionMode):
    """Every torch function that runs inside: its name, its line in the learner's files, and its result.

    Dropout is switched off, or with `dropout` recorded with the tensor that it acts on.
    """

    def __init__(
        self, files: set[str], job: protocol.DriverJob, seen: dict[str, Any], returned: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.files, self.keeps, self.finite = files, bool(job.get("record")), bool(job.get("finite"))
        self.dropout = job.get("dropout") is not None
        self.seen, self.returned = seen, returned
        self._made: dict[int, tuple[int, Tensor]] = {}  # the call that made a tensor, and the tensor, to keep its id
        self.is_on = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in DROPOUTS and args:
            if not self.dropout:
                return args[0]
            self._drop(args, kwargs)
        elif name == "scaled_dot_product_attention":
            args, kwargs = self._drop_fused(args, kwargs)
        result = func(*args, **kwargs)
        if self.finite:
            for value in _flat(result):
                if value.is_floating_point() and value.isinf().any():
                    value.detach().clamp_(-LARGE, LARGE)
        if self.keeps and self.is_on and len(self.seen["recorded"]) < MOST_CALLS:
            if name == "__get__":
                name = getattr(getattr(func, "__self__", None), "__name__", "")  # x.mT is a property
            self._keep(name, [*args, *kwargs.values()], args[0] if name == "__setitem__" else result)
        return result

    def _drop_fused(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments of the fused kernel, without dropout unless that is asked for."""
        p = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
        if p and not self.dropout:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs = {n: value for n, value in kwargs.items() if n != "dropout_p"}
        elif p and self.is_on:
            self._note("dropped", torch.zeros(0), p=float(p))
        return args, kwargs

    def _drop(self, args: Any, kwargs: dict[str, Any]) -> None:
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        if training and p and self.is_on and isinstance(args[0], Tensor) and len(self.seen["dropped"]) < 100:
            self._note("dropped", args[0], p=float(p))

    def _keep(self, name: str, given: list[Any], result: Any) -> None:
        inputs = [self._made[id(t)][0] for t in _flat(given) if id(t) in self._made]
        plain = name.strip("_") if name.startswith("__") else name  # masked_fill_ changes a tensor in place
        for value in _flat(result):
            if value.numel() <= MOST_NUMBERS and value.layout is torch.strided:
                self._made[id(value)] = (len(self.seen["recorded"]), value)
                self._note("recorded", value, name=plain, inputs=inputs)

    def _note(self, kind: str, value: Tensor, **facts: Any) -> None:
        self.returned[f"{kind}.{len(self.seen[kind])}"] = value.detach().clone()
        self.seen[kind].append({**facts, "line": _learner_line(self.files)})


def _learner_line(files: set[str]) -> int:
    """The line in the learner's files that is running."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename in files:
            return int(frame.f_lineno)
        frame = frame.f_back
    return 0


class Devices(TorchFunctionMode):
    """Where tensors would be if the module and its inputs were on a GPU; a call that mixes them with others is a fault.

    No device is needed: what is made of a tensor on the GPU is there too, and what is made from nothing is on the CPU.
    """

    FREE = ("to", "type_as", "copy_", "__getitem__", "__setitem__", "__get__", "cuda", "is_floating_point", "__len__")

    def __init__(self, files: set[str], subject: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.files = files
        own = [*subject.parameters(), *subject.buffers()] if isinstance(subject, nn.Module) else []
        self.moved = {id(t): t for t in (*own, *_flat(arguments))}
        self.kept: list[Any] = []  # so that no id is used twice
        self.fault: protocol.FaultReport | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        given = _flat([*args, *kwargs.values()])
        there = [t for t in given if id(t) in self.moved]
        here = [t for t in given if id(t) not in self.moved and t.dim()]
        if there and here and name not in self.FREE and self.fault is None:
            self.fault = {"name": name, "line": _learner_line(self.files)}
        moves = name in ("type_as", "cuda") or (name == "to" and any(isinstance(a, torch.device) for a in args))
        if there or moves or kwargs.get("device") is not None:
            self.moved |= {id(t): t for t in _flat(result)}
        self.kept.append(result)
        return result


def failure(error: BaseException, files: set[str]) -> dict[str, Any]:
    """An exception as data: its type, message and the last line of the learner's that it passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return {
        "type": type(error).__name__,
        "message": str(error)[:LONGEST],
        "line": (frames[-1].lineno or 0) if frames else 0,
        "function": frames[-1].name if frames else "",
    }


def files_of(target: Any) -> set[str]:
    """The files in which a class (or an instance's class, or a function) was written, without torch's own."""
    target = inspect.unwrap(target) if inspect.isfunction(target) else target
    if inspect.isfunction(target):
        return {target.__code__.co_filename}
    classes = (target if isinstance(target, type) else type(target)).__mro__
    is_initialised = isinstance(target, nn.Module) and "_modules" in vars(target)
    inside = [type(part) for part in target.modules()] if is_initialised else []
    files = set()
    for one in {*classes, *inside}:
        if not one.__module__.startswith(("torch.", "builtins", "typing", "abc")):
            functions = [inspect.unwrap(f) for f in vars(one).values() if inspect.isfunction(f)]
            files |= {f.__code__.co_filename for f in functions}
    return files


def _contents(module: nn.Module) -> protocol.ModuleContents:
    """What a module holds: parameters, buffers, tensors that torch does not know of, and plain attributes."""
    modules = list(module.named_modules())
    classes = {path: f"{type(part).__module__}.{type(part).__name__}" for path, part in modules}
    attributes = [(f"{path}.{name}".lstrip("."), value) for path, part in modules for name, value in vars(part).items()]
    inside = [(path, part) for path, part in modules if path and not isinstance(part, (nn.Linear, nn.ModuleList))]
    named = module.named_parameters(remove_duplicate=False)
    return {
        "parameters": [{**_facts(name, p), "owner": classes.get(name.rpartition(".")[0], "")} for name, p in named],
        "buffers": [_facts(name, b) for name, b in module.named_buffers()],
        "loose": [_facts(path, value) for path, value in attributes if isinstance(value, Tensor)],
        "attributes": _numbers(module),
        "dropouts": [float(part.p) for _, part in modules if isinstance(part, nn.Dropout)],
        "inside": [{"path": path, **describe_class(type(part))} for path, part in inside[:MOST_INSIDE]],
        "methods": [name for name in dir(type(module)) if not name.startswith("_") and name not in dir(nn.Module)],
    }


def _numbers(module: nn.Module) -> dict[str, Any]:
    """The numbers among the attributes of a module and of its configuration."""
    numbers: dict[str, Any] = {}
    for one in (*(getattr(module, name, None) for name in ("config", "cfg", "args")), module):
        values = one if isinstance(one, dict) else getattr(one, "__dict__", {})
        numbers |= {n: v for n, v in values.items() if type(v) in (int, float, bool) and not n.startswith("_")}
    return numbers


def _facts(name: str, t: Tensor) -> protocol.TensorFacts:
    return {"name": name, "shape": list(t.shape), "is_mask": _is_mask(t)}


def _is_mask(t: Tensor) -> bool:
    """Is it a square of nothing but 0, 1 and infinities, and not all the same?"""
    if t.dim() < 2 or t.shape[-1] != t.shape[-2] or t.shape[-1] < 2 or t.is_meta:
        return False
    values = t.detach().to(torch.float64)
    is_plain = bool(((values == 0) | (values == 1) | values.isinf() | (values <= HIDES_IN_EXAMPLE)).all())
    return is_plain and not bool((values == values.flatten()[0]).all())


def _prepare(module: nn.Module, job: protocol.DriverJob, tensors: dict[str, Tensor]) -> None:
    module.to(getattr(torch, job.get("dtype", "float64")))
    if job.get("state"):
        with torch.no_grad():
            for name, parameter in module.named_parameters(remove_duplicate=False):
                value = tensors.get(f"state.{name}")
                if value is not None and value.shape == parameter.shape:
                    parameter.copy_(value)
    module.train(bool(job.get("train")))
    if job.get("dropout") is not None:
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = job["dropout"]
            elif isinstance(part, nn.MultiheadAttention):
                part.dropout = job["dropout"]


def _built(target: Any, arguments: dict[str, Any] | None) -> Any:
    """An instance; an argument that is a mapping becomes a configuration. A copy of what is built already."""
    if arguments is not None:
        return target(**{name: Config(one) if isinstance(one, dict) else one for name, one in arguments.items()})
    if not isinstance(target, nn.Module):
        return target
    replaced: dict[int, Any] = {}
    for part in target.modules():  # tensors kept from the last run have a history, which deepcopy refuses
        kept = (t for t in vars(part).values() if isinstance(t, Tensor) and not t.is_leaf)
        replaced |= {id(t): t.detach().clone() for t in kept}
    return copy.deepcopy(target, replaced)


def _argument(tensor: Tensor, job: protocol.DriverJob) -> Any:
    if tensor.is_floating_point():
        tensor = tensor.to(getattr(torch, job.get("dtype", "float64")))
    return tensor.numpy().copy() if job.get("numpy") else tensor.clone()


def _call(subject: Any, call: protocol.CallJob, tensors: dict[str, Any], previous: Any) -> Any:
    """Call it; {"cache": n} is the n-th part of what the call before returned, as for keys and values of a cache."""

    def value(one: Any) -> Any:
        if isinstance(one, str):
            return tensors[one]
        return previous[one["cache"]] if "cache" in one else one["value"]

    return subject(*map(value, call["args"]), **{name: value(one) for name, one in call.get("kwargs", {}).items()})


def _without_gradient(subject: Any, outputs: list[Tensor]) -> list[str]:
    """The parameters that do not change the output."""
    out = next((t for t in outputs if t.requires_grad), None)
    if out is None or not isinstance(subject, nn.Module):
        return []
    generator = torch.Generator().manual_seed(0)
    (out * torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)).sum().backward()
    return [n for n, p in subject.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]


def _flat(result: Any) -> list[Tensor]:
    """The tensors of a result, in order."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in _flat(part)]
    if isinstance(result, dict):
        return _flat(list(result.values()))
    if type(result).__module__ == "numpy" and type(result).__name__ == "ndarray" and result.dtype.kind in "fiub":
        return [torch.tensor(result)]
    return []


def _parameters(function: Any, skip_first: bool = False) -> list[protocol.ArgumentFacts]:
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
