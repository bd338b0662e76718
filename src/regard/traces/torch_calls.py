"""Operations: what a module does to its tensors, for code that names no steps of its own.

Every call of a torch function is written down while a trace runs. Around the softmax the words are the usual
ones (scores, mask, scaled, weights, dropout, context); elsewhere a step is named after the submodule or the
function that made it. Errors that every learner meets are told with the rule, the values and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

AROUND_SOFTMAX = {"scores", "mask", "scaled", "weights", "context"}  # the words that named() gives
_QUIET = {"detach", "clone", "to", "float", "double", "type", "requires_grad_", "cpu", "cuda", "tensor"}
_PRODUCTS = {"matmul", "__matmul__", "bmm", "mm", "einsum", "baddbmm"}
_MASKS = {"masked_fill", "masked_fill_", "where"}
_SCALES = {"div", "div_", "__truediv__", "__itruediv__", "mul", "mul_", "__mul__", "__imul__", "__rmul__"}


class Operations(TorchFunctionMode):
    """Write down the name, operation and result of every torch function called inside."""

    def __init__(self, module: nn.Module | None = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, Tensor]] = []
        self._owner: dict[int, str] = {}
        self._paused = self._forgotten = False
        for name, child in module.named_modules() if module is not None else ():
            self._owner.update({id(p): name for p in child.parameters(recurse=False)})

    def forget(self) -> None:
        """Drop what was written down, and write no more; errors are still told."""
        self.calls.clear()
        self._forgotten = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing down for a while: the trace itself uses torch functions too."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if better := _told_better(name, args, error):
                raise better from error
            raise
        if self._paused or self._forgotten or name == "__get__" or name in _QUIET or not isinstance(result, Tensor):
            return result
        if resolve_name(func) is None:
            return result
        with self.paused():
            owner = self._owner.get(id(args[1]), "") if name == "linear" and len(args) > 1 else ""
            self.calls.append((owner or name.strip("_"), _describe(name, owner, args), result.detach().clone()))
        return result

    def named(self) -> list[tuple[str, str, Tensor]]:
        """The calls, with the words of attention around each softmax and a number on repeated names."""
        names = [name for name, _, _ in self.calls]
        for i, name in enumerate(list(names)):
            if name != "softmax":
                continue
            names[i] = "weights"
            for j in range(i - 1, -1, -1):
                if names[j] in {p.strip("_") for p in _PRODUCTS}:
                    names[j] = "scores"
                    break
                if names[j] in {m.strip("_") for m in _MASKS}:
                    names[j] = "mask"
                elif names[j] in {s.strip("_") for s in _SCALES}:
                    names[j] = "scaled"
            after = next((j for j in range(i + 1, len(names)) if names[j] in {p.strip("_") for p in _PRODUCTS}), None)
            if after is not None:
                names[after] = "context"
        seen: dict[str, int] = {}
        told = []
        for name, (_, operation, value) in zip(names, self.calls, strict=True):
            seen[name] = seen.get(name, 0) + 1
            told.append((name if seen[name] == 1 else f"{name} {seen[name]}", operation, value))
        return told


def explain_failure(failed: nn.Module | Exception) -> ValueError | None:
    """Say exactly which rule of torch was missed, where that is known; else None."""
    if isinstance(failed, nn.Module):
        if "_modules" not in failed.__dict__:
            return _no_super_init(type(failed).__name__)
        return next((error for child in failed.children() if (error := explain_failure(child))), None)
    if isinstance(failed, ValueError) or "Module.__init__() call" not in str(failed):
        return None
    frame = failed.__traceback__
    name = "this module"
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and "_modules" not in owner.__dict__:
            name = type(owner).__name__
        frame = frame.tb_next
    return _no_super_init(name)


def _no_super_init(name: str) -> ValueError:
    return ValueError(
        f"{name}.__init__ never called super().__init__(), so torch cannot keep its layers; "
        "make super().__init__() the first line of __init__"
    )


def _told_better(name: str, args: tuple[Any, ...], error: RuntimeError) -> ValueError | None:
    message = str(error)
    if name == "view" and "view size is not compatible" in message:
        sizes = ", ".join(map(str, args[1] if isinstance(args[1], (tuple, list)) else args[1:]))
        return ValueError(
            f"view({sizes}) needs memory in order, but this {_sizes(args[0])} tensor was transposed "
            f"(strides {tuple(args[0].stride())}); call .contiguous() before .view(), or use .reshape({sizes})"
        )
    if name == "linear" and "shapes cannot be multiplied" in message and isinstance(args[0], Tensor):
        wide, takes = args[0].shape[-1], args[1].shape[1]
        return ValueError(
            f"x has width {wide} but this linear layer takes {takes}; project it first, or build the layer with {wide}"
        )
    return None


def _describe(name: str, owner: str, args: tuple[Any, ...]) -> str:
    if owner:
        return f"{owner}({_sizes(args[0])})"
    shown = [_sizes(a) if isinstance(a, Tensor) else repr(a) for a in args]
    if name in {"matmul", "__matmul__", "bmm", "mm"}:
        return " @ ".join(shown)
    if args and isinstance(args[0], Tensor):
        return f"{name.strip('_')}({', '.join(shown[1:])})" if len(shown) > 1 else f"{name.strip('_')}()"
    return f"{name.strip('_')}({', '.join(shown)})"


def _sizes(value: Any) -> str:
    text = "×".join(map(str, value.shape)) if isinstance(value, Tensor) else str(value)
    return re.sub(r"\s+", " ", text) or "number"
