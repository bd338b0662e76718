"""A class that is no nn.Module, in torch or NumPy, as the layer that it is: its arrays become parameters.

It stands alone, on torch and NumPy: it is sent along with driver.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Methods that compute attention, the first that a class has.
_METHODS = (
    *("forward", "__call__", "attend", "attention", "compute", "compute_attention", "self_attention", "apply", "call"),
    *("run", "process", "transform", "predict"),
)
_DEEPEST = 4  # how far lists, dicts and other objects are searched for arrays


def call_method(one: type) -> str:
    """The name of the method that computes what a class is for; "" where it has none."""
    if issubclass(one, nn.Module):
        return "forward"
    bases = [base for base in reversed(one.__mro__) if base.__module__ == one.__module__]  # not unittest.TestCase
    own = {name: value for base in bases for name, value in vars(base).items() if not name.lower().startswith("test")}
    public = [name for name, value in own.items() if inspect.isfunction(value) and not name.startswith("_")]
    known = [name for name in _METHODS if callable(own.get(name))]
    return known[0] if known else public[0] if len(public) == 1 else ""


class Part(nn.Module):
    """Holds the arrays of a list, a dict or an object inside a plain layer."""


class PlainLayer(nn.Module):
    """An instance of a plain class, called with tensors or arrays, whichever it computes with."""

    def __init__(self, plain: Any) -> None:
        super().__init__()
        if not (method := call_method(type(plain))):
            raise AttributeError(f"{type(plain).__name__} has no method forward or __call__")
        self.plain, self.method = plain, getattr(plain, method)
        self._places: list[tuple[Any, Any, nn.Parameter]] = []
        self._placed: list[Any] = []
        arrays = list(_arrays(plain, "", type(plain).__module__, _DEEPEST))
        is_array = [isinstance(value, np.ndarray) for _, value, _, _ in arrays if not isinstance(value, nn.Module)]
        used = {getattr(one, "__name__", "") for one in getattr(self.method, "__globals__", {}).values()}
        self.is_numpy = any(is_array) or (not arrays and "numpy" in used and "torch" not in used)
        known: dict[int, nn.Parameter] = {}
        for name, value, container, key in arrays:
            *path, last = name.split(".")
            part: nn.Module = self
            for step in path:
                part = part._modules.setdefault(step, Part())  # type: ignore[assignment]
            if isinstance(value, nn.Module):
                part._modules[last] = value
                continue
            tensor = torch.as_tensor(value)
            if not tensor.is_floating_point():
                part._buffers[last] = tensor
                continue
            if id(value) not in known:
                known[id(value)] = part._parameters[last] = nn.Parameter(tensor.detach().clone())
            self._places.append((container, key, known[id(value)]))

    def train(self, mode: bool = True) -> PlainLayer:
        """Switch the instance, too, where it has a switch."""
        super().train(mode)
        if isinstance(getattr(self.plain, "training", None), bool):
            self.plain.training = mode
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, with the parameters as they are now; what it made of them itself stays."""
        versions = [(one.data_ptr(), one._version, one.dtype) for _, _, one in self._places]
        if versions != self._placed:
            self._placed = versions
            for container, key, parameter in self._places:
                container[key] = parameter.detach().numpy().copy() if self.is_numpy else parameter
        if self.is_numpy:
            args = tuple(_as_array(one) for one in args)
            kwargs = {name: _as_array(one) for name, one in kwargs.items()}
        return self.method(*args, **kwargs)


def as_layer(built: Any) -> Any:
    """A module or a function as it is; an instance of a plain class as a layer."""
    return built if isinstance(built, nn.Module) or inspect.isroutine(built) else PlainLayer(built)


def _as_array(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _arrays(value: Any, path: str, module: str, deepest: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """Arrays, tensors and modules inside of an object: their names, and the container and key that hold each."""
    container = value if isinstance(value, (list, dict)) else getattr(value, "__dict__", {})
    for key, one in list(container.items() if isinstance(container, dict) else enumerate(container)):
        name = f"{path}{str(key).replace('.', '_')}"
        is_array = isinstance(one, (Tensor, np.ndarray)) and one.ndim > 0 and getattr(one.dtype, "kind", "f") in "fiub"
        if is_array or isinstance(one, nn.Module):
            yield name, one, container, key
        elif deepest and (isinstance(one, (list, dict)) or type(one).__module__ == module):
            yield from _arrays(one, f"{name}.", module, deepest - 1)
