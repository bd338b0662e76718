"""Modules that make no attention: those of torch.nn that are known, and others whose code shows it.

More than half of the modules that a model calls are such leaves. They are called without bookkeeping, and without our
function mode where no tensor is followed, which would take longer than many of them do.
"""

from __future__ import annotations

import dis
import math
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

KNOWN = {
    nn.Linear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.Dropout,
    nn.Embedding,
    nn.Identity,
    nn.GELU,
    nn.ReLU,
    nn.SiLU,
    nn.Tanh,
}
# What the code of a leaf may name: functions that are neither a softmax nor a matrix product of two inputs.
ELEMENTARY = {
    *("size", "shape", "dim", "ndim", "dtype", "device", "float32", "view", "reshape", "flatten", "contiguous"),
    *("to", "float", "type", "type_as", "mean", "var", "pow", "square", "sqrt", "rsqrt", "tanh", "sigmoid", "relu"),
    *("gelu", "silu", "mul", "add", "addmm", "linear", "layer_norm", "rms_norm", "dropout", "functional", "pi"),
}
LIBRARIES = (torch, nn, F, math)


def is_leaf(module: nn.Module) -> bool:
    """Does this module make no attention, whatever it is called with?

    >>> class Scale(nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x / x.pow(2).mean(-1, keepdim=True).sqrt()
    >>> is_leaf(Scale()), is_leaf(nn.Softmax(-1)), is_leaf(nn.Sequential(Scale()))
    (True, False, False)
    """
    kind: Any = type(module)
    if kind in KNOWN:
        return True
    if module._modules or "forward" in module.__dict__:
        return False
    names = _values_of(kind)
    return names is not None and all(_is_value(module, name) for name in names)


@lru_cache(maxsize=1024)
def _values_of(kind: Any) -> tuple[str, ...] | None:
    """The names in the code of forward() that must be values of the module; None where it may call anything else."""
    code = getattr(kind.forward, "__code__", None)
    if code is None or code.co_freevars or any(isinstance(one, CodeType) for one in code.co_consts):
        return None
    if any(step.argrepr in ("@", "@=") or "MATRIX_MULTIPLY" in step.opname for step in dis.get_instructions(code)):
        return None
    methods = {name for base in kind.__mro__[: kind.__mro__.index(nn.Module)] for name in vars(base)}
    outside = {name: value for name, value in kind.forward.__globals__.items() if name in code.co_names}
    if not methods.isdisjoint(code.co_names) or not all(any(o is lib for lib in LIBRARIES) for o in outside.values()):
        return None
    return tuple(name for name in code.co_names if name not in ELEMENTARY and name not in outside)


def _is_value(module: nn.Module, name: str) -> bool:
    """Is this a number or a tensor of the module, rather than something that can be called?"""
    return name in module._parameters or name in module._buffers or not callable(vars(module).get(name, callable))
