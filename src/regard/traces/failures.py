"""Failures: errors of torch that every learner meets, explained with the rule, the values and the remedy."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regard.super_init import explain_missing_init


def explain_failure(failed: nn.Module | Exception) -> ValueError | None:
    """Say which rule of torch a module or an exception missed, where that is known; else None."""
    return explain_missing_init(failed)


class ExplainedCallError(ValueError, RuntimeError):
    """A failed call of torch, explained. Also a RuntimeError, as torch's own, for code that catches that one."""


def explain_call(name: str, args: tuple[Any, ...], error: RuntimeError) -> ExplainedCallError | None:
    """Say why this call of a torch function failed, where that is known; else None."""
    if not args or not isinstance(args[0], Tensor):
        return None
    message = str(error)
    if name == "view" and "view size is not compatible" in message:
        sizes = ", ".join(map(str, args[1] if isinstance(args[1], (tuple, list)) else args[1:]))
        shape = "×".join(map(str, args[0].shape))
        return ExplainedCallError(
            f"view({sizes}) needs memory in order, but this {shape} tensor was transposed "
            f"(strides {tuple(args[0].stride())}); call .contiguous() before .view(), or use .reshape({sizes})"
        )
    if name == "linear" and "shapes cannot be multiplied" in message and len(args) > 1:
        width, d_in = args[0].shape[-1], args[1].shape[1]
        return ExplainedCallError(
            f"x has width {width} but this linear layer takes {d_in}; project it first, or build the layer with {width}"
        )
    return None
