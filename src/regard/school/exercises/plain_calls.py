"""Calls with plain values: arguments go to a learner's function, and what it returns comes back, as JSON and tensors.

It stands alone, on torch: this file is sent into the process in which a learner's file runs. Plain values are tensors,
numbers, texts, None, and lists, tuples and dicts of these. Sizes are bounded on both sides.
"""

import traceback
import warnings
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

MOST_VALUES = 20_000  # numbers, texts, tensors and lists in one value
MOST_TENSORS = 1000
MOST_CHARACTERS = 200_000  # of all texts in one value
DEEPEST = 20  # lists in lists
LONGEST_MESSAGE = 2000  # characters


class Opaque:
    """In place of a value that is not plain: the name of its type."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:  # so it has no hash, and is no key
        return False


def write_plain(value: Any, tensors: dict[str, Tensor], room: list[int] | None = None, depth: int = 0) -> Any:
    """A value as JSON; the tensors in it are added to `tensors`. ValueError if it is too large."""
    room = [MOST_VALUES, MOST_CHARACTERS] if room is None else room
    room[0] -= 1
    value = _as_known(value)
    if isinstance(value, Tensor):
        return _write_tensor(value, tensors)
    room[1] -= len(value) if isinstance(value, str) else 0
    if min(room) < 0 or depth > DEEPEST:
        most = f"at most {MOST_VALUES} values and {MOST_CHARACTERS} characters, lists at most {DEEPEST} deep"
        raise ValueError(f"it returns too much: {most}")
    if isinstance(value, (bool, float, str, type(None))):
        return {"value": value}
    if isinstance(value, int):
        return {"value": int(value)} if abs(value) < 1 << 63 else {"opaque": "whole number of more than 64 bits"}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [write_plain(one, tensors, room, depth + 1) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[write_plain(part, tensors, room, depth + 1) for part in pair] for pair in value.items()]}
    return {"opaque": type(value).__name__[:200]}


def read_plain(written: Any, tensors: dict[str, Tensor], depth: int = 0) -> Any:
    """The value that was written. ValueError, KeyError or TypeError if it was not written by `write_plain`."""
    if not isinstance(written, dict) or len(written) != 1 or depth > DEEPEST:
        raise ValueError("a value is not written as {kind: content}")
    kind, content = next(iter(written.items()))
    if kind == "tensor":
        return tensors[content]
    if kind == "opaque":
        return Opaque(str(content)[:200])
    if kind == "value" and (content is None or isinstance(content, (bool, int, float, str))):
        return content
    if kind in ("list", "tuple") and isinstance(content, list):
        parts = [read_plain(one, tensors, depth + 1) for one in content]
        return parts if kind == "list" else tuple(parts)
    if kind == "dict" and isinstance(content, list):
        return {read_plain(k, tensors, depth + 1): read_plain(v, tensors, depth + 1) for k, v in content}
    raise ValueError("a value is of an unknown kind")


def drive(
    submission: ModuleType, tensors: dict[str, Tensor], job: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Call what a file defines by this name, or read it where it is no function: plain results, and arguments after.

    The job: name; calls, each with a list of written arguments and a seed; read: do not call it, even if that is
    possible; module: the arguments and weights of a class; through: the name and the text of a function that calls
    it. After a call that fails there are no more.
    """
    torch.set_num_threads(1)
    if job["name"] not in vars(submission):
        return {}, {"missing": True}
    target = found = vars(submission)[job["name"]]
    if "module" in job:
        build, state = (read_plain(one, tensors) for one in job["module"])
        target = found(*build).eval()
        target.load_state_dict(state, strict=False)
    elif callable(found) and job.get("through"):
        name, text = job["through"]
        names: dict[str, Any] = {}
        exec(text, names)
        target = partial(names[name], found)
    results: list[dict[str, Any]] = []
    returned: dict[str, Tensor] = {}
    for call in job["calls"]:
        arguments = [read_plain(one, tensors) for one in call["arguments"]]
        torch.manual_seed(call["seed"])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = target(*arguments) if callable(target) and not job["read"] else target
            results.append({"result": write_plain(value, returned), "after": write_plain(arguments, returned)})
        except Exception as error:
            results.append({"failed": _describe(error, str(submission.__file__))})
            break
    return returned, {"calls": results, "callable": callable(found)}


def _write_tensor(value: Tensor, tensors: dict[str, Tensor]) -> dict[str, str]:
    if len(tensors) >= MOST_TENSORS:
        raise ValueError(f"it returns more than {MOST_TENSORS} tensors")
    if value.is_meta:
        return {"opaque": "tensor without numbers, on the device meta"}
    name, plain = f"plain.{len(tensors)}", value.detach()
    tensors[name] = plain.clone() if plain.layout is torch.strided else plain.to_dense()
    return {"tensor": name}


def _as_known(value: Any) -> Any:
    """An array as a tensor, a set as a list in order; anything else as it is."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if type(value).__module__ != "numpy":
        return value
    if getattr(getattr(value, "dtype", None), "kind", "?") not in "fiub":
        return value  # torch does not know it
    return torch.tensor(value) if value.ndim else value.item()


def _describe(error: Exception, file: str) -> dict[str, Any]:
    """An exception as data: its type, message and the last line of the file that it passed; of no tensor, the shape."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line, function = (frames[-1].lineno or 0, frames[-1].name) if frames else (0, "")
    message = str(error)[:LONGEST_MESSAGE]
    return {"type": type(error).__name__, "message": message, "line": line, "function": function, "shapes": {}}
