"""The driver runs a learner's code and returns numbers, never a verdict.

It stands alone, on torch and plain_layer.py: a grader sends both files into the process in which a submission runs,
where nothing else of regard can be imported. Jobs and reports are those of protocol.py; tensors travel beside them by
name.
"""

from __future__ import annotations

import inspect
import math
import traceback
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.school.check.learner_code.construction import (
    argument_of,
    build,
    call_with,
    parameters_of,
    returned_tensors,
    tensor_names,
)
from regard.school.check.learner_code.plain_layer import PlainLayer, as_layer, call_method
from regard.school.check.learner_code.recording import Devices, Lines, Recorder

if TYPE_CHECKING:  # there is no protocol.py where this file runs
    from . import protocol

MOST_INSIDE = 200  # modules of a model that are described
LONGEST = 2000  # characters of a message
MOST_LINES = 1000  # of a file that are told to have run
MOST_AXES = 16  # of a tensor whose shape is told
HIDES_IN_EXAMPLE = -9000.0  # as in support/hidden_scores.py


def describe(module: ModuleType) -> protocol.FileDescription:
    """The layers and functions that a file defines, in order, with the arguments that they take."""
    own = own_values(module)
    return {
        "classes": [describe_class(one, name) for name, one in own if isinstance(one, type)],
        "functions": [describe_function(one, name) for name, one in own if not isinstance(one, type)],
        "skipped": list(getattr(module, "__skipped__", ())),
    }


def own_values(module: ModuleType) -> list[tuple[str, Any]]:
    """The classes that can be called, then the functions of a file, by name; a lambda has that of its variable.

    Of a class that is no nn.Module, the instances can be called if it has a method for that.
    """
    own: dict[int, tuple[str, Any]] = {}
    for name, one in vars(module).items():
        if getattr(one, "__module__", "") == module.__name__:
            said = str(getattr(one, "__name__", name))
            own.setdefault(id(one), (said if vars(module).get(said) is one else name, one))
    classes = [one for one in own.values() if isinstance(one[1], type) and not issubclass(one[1], BaseException)]
    classes = [one for one in classes if not inspect.isabstract(one[1])]
    functions = [one for one in own.values() if inspect.isfunction(one[1])]
    return [one for one in classes if call_method(one[1])] + functions


def describe_class(one: type, name: str = "") -> protocol.Description:
    """A class: what it is built with, and what it is called with."""
    called = getattr(one, call_method(one) or "__call__", None)
    is_plain = not issubclass(one, nn.Module)
    call = parameters_of(called, skip_first=True)
    return {"name": name or one.__name__, "build": parameters_of(one), "call": call, "is_plain": is_plain}


def describe_function(function: Any, name: str = "") -> protocol.Description:
    """A function and its arguments."""
    return {"name": name or function.__name__, "call": parameters_of(function)}


def run(target: Any, job: protocol.DriverJob, tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Do one job with a class, a function or an instance; return what was seen, and tensors by name."""
    lines = Lines(file_of(target))
    seen, returned = _run(target, job, tensors, lines)
    return {**seen, "ran": sorted(lines.ran)[:MOST_LINES]}, returned


def _run(
    target: Any, job: protocol.DriverJob, tensors: dict[str, Tensor], lines: Lines
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    seen: dict[str, Any] = {"calls": [], "recorded": [], "dropped": []}
    returned: dict[str, Tensor] = {}
    recorder = Recorder(files_of(target), job, seen, returned, lines)
    try:
        subject = _made(target, job, tensors, recorder, {})
    except Exception as error:
        seen["failed"] = failure(error, recorder.files)
        return seen, returned
    previous: Any = None
    lists: dict[str, Any] = {}
    for number, call in enumerate(job.get("calls", ())):
        given, leaves = _arguments(call, job, tensors)
        one: dict[str, Any] = {"outputs": [], "after": {}}
        recorder.is_on = not number
        try:
            if call.get("fresh") and number:
                subject = _made(target, job, tensors, recorder, call.get("state", {}))
            torch.default_generator.manual_seed(number if job.get("seeds") else 0)
            mode = Devices(recorder.files, subject, given) if job.get("devices") else recorder
            if recorder.is_on:
                recorder.keep_operands(subject, given)
            with torch.set_grad_enabled(bool(job.get("gradients"))), warnings.catch_warnings(), mode, lines:
                warnings.simplefilter("ignore")
                previous = call_with(subject, call, given, previous, lists)
            if isinstance(mode, Devices):
                seen["elsewhere"] = mode.fault
            outputs = returned_tensors(previous)
            for i, value in enumerate(outputs):
                returned[f"out.{number}.{i}"] = value.detach().clone()
                one["outputs"].append(f"out.{number}.{i}")
            if job.get("gradients") and not number:
                _gradients(subject, outputs, leaves, tensors["cotangent"], seen, returned)
        except Exception as error:
            one["failed"] = failure(error, recorder.files)
        for i, (name, value) in enumerate(given.items()):  # whoever asked compares them with what was given
            returned[f"after.{number}.{i}"] = torch.as_tensor(value).detach()
            one["after"][name] = f"after.{number}.{i}"
        seen["calls"].append(one)
    return seen, returned


def _made(target: Any, job: protocol.DriverJob, tensors: dict[str, Tensor], recorder: Recorder, state: Any) -> Any:
    """An instance with the weights, dtype and mode of the job; what the first one holds is told."""
    torch.default_generator.manual_seed(0)
    with recorder, recorder.lines:
        subject = as_layer(build(target, job.get("build")))
        if job.get("inside"):
            subject = subject.get_submodule(job["inside"])
    recorder.files |= files_of(subject.plain if isinstance(subject, PlainLayer) else subject)
    _materialise(subject, job, tensors)
    if "built" not in recorder.seen:
        recorder.seen["built"] = len(recorder.seen["recorded"])
        recorder.seen.update(_contents(subject) if isinstance(subject, nn.Module) else {})
    if isinstance(subject, nn.Module):
        _prepare(subject, job, tensors, state)
    return subject


def failure(error: BaseException, files: set[str]) -> dict[str, Any]:
    """An exception as data: its type, message and the last line of the learner's that it passed."""
    frames = [
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename in files
    ]
    frame, line = frames[-1] if frames else (None, 0)
    return {
        "type": type(error).__name__,
        "message": str(error)[:LONGEST],
        "line": line or 0,
        "function": "" if frame is None else frame.f_code.co_name,
        "shapes": {} if frame is None else _shapes(frame.f_locals),
    }


def _shapes(variables: dict[str, Any]) -> dict[str, list[int]]:
    """The shapes of the tensors and arrays among some variables."""
    shapes = {}
    for name, value in list(variables.items())[:MOST_INSIDE]:
        try:
            shape = list(value.shape) if isinstance(value, Tensor) or type(value).__module__ == "numpy" else []
        except (AttributeError, RuntimeError):  # a tensor of functorch that has left its function
            continue
        if 0 < len(shape) <= MOST_AXES and all(type(n) is int for n in shape):
            shapes[name] = shape
    return shapes


def file_of(target: Any) -> str:
    """The file in which a class, the class of an instance, or a function was written; "" where it is unknown."""
    target = inspect.unwrap(target) if inspect.isfunction(target) else target
    own = target if isinstance(target, type) or inspect.isfunction(target) else type(target)
    functions = [own] if inspect.isfunction(own) else [f for f in vars(own).values() if inspect.isfunction(f)]
    return next((inspect.unwrap(f).__code__.co_filename for f in functions), "")


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
        "parameters": [
            {**_facts(name, p), "owner": classes.get(name.rpartition(".")[0], ""), "spread": _spread(p)}
            for name, p in named
        ],
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
    for one in (*(getattr(module, name, None) for name in ("config", "cfg", "args", "plain")), module):
        values = one if isinstance(one, dict) else getattr(one, "__dict__", {})
        numbers |= {n: v for n, v in values.items() if type(v) in (int, float, bool) and not n.startswith("_")}
    return numbers


def _facts(name: str, t: Tensor) -> protocol.TensorFacts:
    return {"name": name, "shape": list(t.shape), "is_mask": _is_mask(t)}


def _spread(t: Tensor) -> float:
    """The standard deviation of the numbers that a parameter begins with."""
    spread = float(t.detach().double().std()) if t.numel() > 1 and not t.is_meta else 0.0
    return spread if math.isfinite(spread) else 0.0


def _is_mask(t: Tensor) -> bool:
    """Is it a square of nothing but 0, 1 and infinities, and not all the same? A learned identity is a matrix."""
    if t.dim() < 2 or t.shape[-1] != t.shape[-2] or t.shape[-1] < 2 or t.is_meta:
        return False
    values = t.detach().to(torch.float64)
    is_plain = bool(((values == 0) | (values == 1) | values.isinf() | (values <= HIDES_IN_EXAMPLE)).all())
    is_identity = t.requires_grad and bool((values == torch.eye(t.shape[-1], dtype=torch.float64)).all())
    return is_plain and not is_identity and not bool((values == values.flatten()[0]).all())


def _prepare(module: nn.Module, job: protocol.DriverJob, tensors: dict[str, Tensor], state: dict[str, str]) -> None:
    dtype = getattr(torch, job.get("dtype", "float64"))
    module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)  # as double() does: complex tables stay
    if job.get("state"):
        with torch.no_grad():
            for name, parameter in module.named_parameters(remove_duplicate=False):
                value = tensors.get(state.get(name, f"state.{name}"))
                if value is not None and value.shape == parameter.shape:
                    parameter.copy_(value)
    module.train(bool(job.get("train")))
    if job.get("dropout") is not None:
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = job["dropout"]
            elif isinstance(part, nn.MultiheadAttention):
                part.dropout = job["dropout"]


def _materialise(subject: Any, job: protocol.DriverJob, tensors: dict[str, Tensor]) -> None:
    """Call a module with lazy parameters once, which gives them their shapes."""
    if isinstance(subject, nn.Module) and any(nn.parameter.is_lazy(p) for p in subject.parameters()):
        call = (job.get("calls") or [job["first"]])[0]
        call_with(subject.float(), call, {name: tensors[name].float() for name in tensor_names(call)}, None)


def _arguments(call: protocol.CallJob, job: protocol.DriverJob, tensors: dict[str, Tensor]) -> tuple[Any, Any]:
    """The tensors of a call by name, and the leaves that they are made of, where gradients are asked for."""
    given = {name: argument_of(tensors[name], job) for name in tensor_names(call)}
    leaves = {n: t.requires_grad_() for n, t in given.items() if job.get("gradients") and t.is_floating_point()}
    return given | {n: t.clone() for n, t in leaves.items()}, leaves  # a layer may not change a leaf in place


def _gradients(
    subject: Any, outputs: list[Tensor], leaves: dict[str, Tensor], cotangent: Tensor, seen: Any, returned: Any
) -> None:
    """The gradients of the output with the shape of the cotangent, and what none reaches; state.NAME: a parameter."""
    own = subject.named_parameters() if isinstance(subject, nn.Module) else ()
    leaves = leaves | {f"state.{name}": p for name, p in own if p.requires_grad}
    out = next((t for t in outputs if t.shape == cotangent.shape and t.requires_grad), None)
    found: Any = [None] * len(leaves)
    if out is not None:
        weighted = (out * cotangent.to(out)).sum()  # with the cotangent as an argument of grad, torch loads sympy
        found = torch.autograd.grad(weighted, list(leaves.values()), allow_unused=True)
    reached = {name: one for name, one in zip(leaves, found, strict=True) if one is not None and one.any()}
    returned |= {f"gradient.{name}": one for name, one in reached.items()}
    seen["gradients"], seen["without_gradient"] = list(reached), [name for name in leaves if name not in reached]
