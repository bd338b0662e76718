"""Failures: wrong arguments of trace, and errors of torch that every learner meets, with the rule and the remedy."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def explain_arguments(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError | None:
    """Say why these cannot be traced; None where they can."""
    if module is None:
        rule = "trace() without a layer takes no arguments; write trace(layer, x), or with trace() as t:"
        return TypeError(rule) if args or kwargs else None
    if isinstance(module, type):
        name = module.__name__
        return TypeError(f"trace takes a layer, but {name} is a class; make one first: trace({name}(…), x)")
    if isinstance(module, Tensor) and args and callable(args[0]):
        return TypeError("trace takes the layer first, then its inputs, but a tensor came first; write trace(layer, x)")
    if not callable(module):
        rule = f"trace takes a layer or a function, and then its inputs, but got {describe_argument(module)}"
        return TypeError(f"{rule}; write trace(layer, x)")
    return None


def describe_argument(value: Any) -> str:
    """A value in an error message."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, (str, int, float)):
        return repr(value)
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"an object of type {type(value).__name__}"


class ExplainedCallError(ValueError, RuntimeError):
    """A failed call of torch, explained. Also a RuntimeError, as torch's own, for code that catches that one."""


def explain_call(name: str, args: tuple[Any, ...], error: RuntimeError) -> ExplainedCallError | None:
    """Say why this call of a torch function failed, where that is known; else None."""
    if not args or not isinstance(args[0], Tensor):
        return None
    message = str(error)
    if name == "view" and "view size is not compatible" in message:
        sizes = ", ".join(map(str, args[1] if isinstance(args[1], (tuple, list)) else args[1:]))
        this = f"this {'×'.join(map(str, args[0].shape))} tensor was transposed (strides {args[0].stride()})"
        remedy = f"call .contiguous() before .view(), or use .reshape({sizes})"
        return ExplainedCallError(f"view({sizes}) needs memory in order, but {this}; {remedy}")
    if name == "linear" and "shapes cannot be multiplied" in message and len(args) > 1:
        width, d_in = args[0].shape[-1], args[1].shape[1]
        remedy = f"project it first, or build the layer with {width}"
        return ExplainedCallError(f"x has width {width} but this linear layer takes {d_in}; {remedy}")
    return None
