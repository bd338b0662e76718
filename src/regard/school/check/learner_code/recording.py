"""Recording: the torch calls of a learner's code while it runs, and where its tensors would be on a GPU.

It is part of the driver, and runs where nothing else of regard can be imported.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.school.check.learner_code.construction import returned_tensors

if TYPE_CHECKING:  # there is no protocol.py where this file runs
    from . import protocol

MOST_CALLS = 600  # recorded torch calls of one experiment
MOST_NUMBERS = 200_000  # of a recorded tensor
LARGE = 1e9  # in place of infinity, where a job asks for that
DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "dropout_", "dropout1d", "dropout2d")


class Recorder(TorchFunctionMode):
    """Every torch function that runs inside: its name, its line in the learner's files, and its result.

    Dropout is switched off, or with `dropout` recorded with the tensor that it acts on.
    """

    def __init__(
        self,
        files: set[str],
        job: protocol.DriverJob,
        seen: dict[str, Any],
        returned: dict[str, Tensor],
        lines: Lines | None = None,
    ) -> None:
        super().__init__()
        self.lines = lines or Lines("")
        self.files, self.keeps, self.finite = files, bool(job.get("record")), bool(job.get("finite"))
        self.dropout = job.get("dropout") is not None or bool(job.get("drops"))
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
            if self.keeps and self.is_on:
                with self:
                    _attend_in_steps(*args, **kwargs)
        if name == "multi_head_attention_forward" and self.keeps:
            with self, _seen_inside(func):
                return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if self.finite:
            for value in returned_tensors(result):
                if value.is_floating_point() and value.isinf().any():
                    value.detach().clamp_(-LARGE, LARGE)
        if self.keeps and self.is_on and len(self.seen["recorded"]) < MOST_CALLS:
            if name == "__get__":
                name = getattr(getattr(func, "__self__", None), "__name__", "")  # x.mT is a property
            equation = args[0] if name == "einsum" and isinstance(args[0], str) else ""
            self._keep(name, [*args, *kwargs.values()], args[0] if name == "__setitem__" else result, equation)
        return result

    def keep_operands(self, subject: Any, given: dict[str, Any]) -> None:
        """Give numbers to what a call works on before it begins: its arguments and parameters."""
        if self.keeps:
            parameters = list(subject.parameters()) if isinstance(subject, nn.Module) else []
            for name, tensors in (("argument", returned_tensors(list(given.values()))), ("parameter", parameters)):
                for t in tensors:
                    self._keep(name, [], t)

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

    def _keep(self, name: str, given: list[Any], result: Any, equation: str = "") -> None:
        inputs = [self._made[id(t)][0] for t in returned_tensors(given) if id(t) in self._made]
        plain = name.strip("_") if name.startswith("__") else name  # masked_fill_ changes a tensor in place
        for value in returned_tensors(result):
            if value.numel() <= MOST_NUMBERS and value.layout is torch.strided:
                self._made[id(value)] = (len(self.seen["recorded"]), value)
                self._note("recorded", value, name=plain, inputs=inputs, equation=equation)

    def _note(self, kind: str, value: Tensor, **facts: Any) -> None:
        self.returned[f"{kind}.{len(self.seen[kind])}"] = value.detach().clone()
        self.seen[kind].append({**facts, "line": _learner_line(self.files)})


def _attend_in_steps(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: Any = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> None:
    """What the fused kernel computes, as calls that are recorded."""
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    torch.softmax(scores, -1) @ v


@contextlib.contextmanager
def _seen_inside(func: Any) -> Iterator[None]:
    """A function of torch that is written in Python is seen as one call: let the calls inside it be seen."""
    names = func.__globals__
    before = names["has_torch_function"]
    names["has_torch_function"] = lambda tensors: False
    try:
        yield
    finally:
        names["has_torch_function"] = before


def _learner_line(files: set[str]) -> int:
    """The line in the learner's files that is running."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename in files:
            return int(frame.f_lineno)
        frame = frame.f_back
    return 0


class Lines:
    """The lines of a file that run inside; `ran` are those so far."""

    def __init__(self, file: str) -> None:
        self.file, self.ran = file, set[int]()
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        if self._before is None:  # a debugger, or a measure of coverage, stays as it is
            sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            sys.settrace(None)

    def _trace(self, frame: Any, event: str, value: Any) -> Any:
        if frame.f_code.co_filename != self.file:
            return None
        self.ran.add(frame.f_lineno)
        return self._trace


class Devices(TorchFunctionMode):
    """Where tensors would be if the module and its inputs were on a GPU; a call that mixes them with others is a fault.

    No device is needed: what is made of a tensor on the GPU is there too, and what is made from nothing is on the CPU.
    """

    FREE = ("to", "type_as", "copy_", "__getitem__", "__setitem__", "__get__", "cuda", "is_floating_point", "__len__")

    def __init__(self, files: set[str], subject: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.files = files
        own = [*subject.parameters(), *subject.buffers()] if isinstance(subject, nn.Module) else []
        self.moved = {id(t): t for t in (*own, *returned_tensors(arguments))}
        self.kept: list[Any] = []  # so that no id is used twice
        self.fault: protocol.FaultReport | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        given = returned_tensors([*args, *kwargs.values()])
        there = [t for t in given if id(t) in self.moved]
        here = [t for t in given if id(t) not in self.moved and t.dim()]
        if there and here and name not in self.FREE and self.fault is None:
            self.fault = {"name": name, "line": _learner_line(self.files)}
        moves = name in ("type_as", "cuda") or (name == "to" and any(isinstance(a, torch.device) for a in args))
        if there or moves or kwargs.get("device") is not None:
            self.moved |= {id(t): t for t in returned_tensors(result)}
        self.kept.append(result)
        return result
