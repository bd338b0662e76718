"""Failures: errors of torch that every learner meets, explained with the rule, the values and the remedy."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def explain_failure(failed: nn.Module | Exception) -> ValueError | None:
    """Say which rule of torch a module or an exception missed, where that is known; else None."""
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


def explain_call(name: str, args: tuple[Any, ...], error: RuntimeError) -> ValueError | None:
    """Say why this call of a torch function failed, where that is known; else None."""
    if not args or not isinstance(args[0], Tensor):
        return None
    message = str(error)
    if name == "view" and "view size is not compatible" in message:
        sizes = ", ".join(map(str, args[1] if isinstance(args[1], (tuple, list)) else args[1:]))
        shape = "×".join(map(str, args[0].shape))
        return ValueError(
            f"view({sizes}) needs memory in order, but this {shape} tensor was transposed "
            f"(strides {tuple(args[0].stride())}); call .contiguous() before .view(), or use .reshape({sizes})"
        )
    if name == "linear" and "shapes cannot be multiplied" in message and len(args) > 1:
        width, d_in = args[0].shape[-1], args[1].shape[1]
        return ValueError(
            f"x has width {width} but this linear layer takes {d_in}; project it first, or build the layer with {width}"
        )
    return None


def _no_super_init(name: str) -> ValueError:
    return ValueError(
        f"{name}.__init__ never called super().__init__(), so torch cannot keep its layers; "
        "make super().__init__() the first line of __init__"
    )
