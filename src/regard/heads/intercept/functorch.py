"""Models that run inside torch.func: tensors of the transforms, and the plain tensors in them.

Under grad and jvp a tensor is wrapped; the plain one inside is what the model computes with. Under vmap a tensor stands
for many, one for each example, and what a model would decide by its values cannot be decided.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from torch import Tensor
from torch._C import _functorch
from torch._functorch import pyfunctorch

from regard.heads.calls.call import Args, Kwargs

Value = TypeVar("Value")


def is_active() -> bool:
    """Is a transform of torch.func running?"""
    return _functorch.peek_interpreter_stack() is not None


def is_vmapped() -> bool:
    """Is one of the transforms that are running a vmap?"""
    stack = _functorch.get_interpreter_stack() if is_active() else None
    return any(one.key() == _functorch.TransformType.Vmap for one in stack or ())


def plain(value: Value) -> Value:
    """The tensor, or the dataclass with its tensors, without the wrappers of grad and jvp.

    >>> import torch
    >>> torch.func.grad(lambda x: (x * plain(x)).sum())(torch.tensor([2.0, 3.0]))
    tensor([2., 3.])
    """
    if isinstance(value, Tensor):
        tensor: Any = value
        while _functorch.is_functorch_wrapped_tensor(tensor):
            tensor = _functorch.get_unwrapped(tensor)
        with off():
            return tensor if tensor is value else tensor.detach()
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {name: new for name, old in held.items() if (new := plain(old)) is not old}
        return replace(value, **changed) if changed else value
    return value


def plain_arguments(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments of a module as far as they can be read: plain tensors, the same for the same; under vmap none."""
    if is_vmapped():
        return (), {}
    known = {id(value): plain(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor)}
    return tuple(known.get(id(a), a) for a in args), {name: known.get(id(a), a) for name, a in kwargs.items()}


def off() -> AbstractContextManager[Any]:
    """Compute with plain tensors, whatever transforms are running."""
    return pyfunctorch.temporarily_clear_interpreter_stack() if is_active() else nullcontext()
