"""Labels: what each tensor of a trace is called, and which operation made it.

A tensor that a step named keeps that name through operations that only rearrange it: split into heads and transposed,
the queries are still `queries`, and their product with the keys reads `queries @ keys.mT`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from regard.traces.operation_text import ATOM, Term, applied, attention_call, method_call, written

# The same values in another dtype, memory or graph: not worth a word.
COPIES = {"detach", "clone", "to", "float", "double", "half", "bfloat16", "type"}
COPIES |= {"requires_grad_", "cpu", "cuda", "data"}
# The same values in another arrangement, or some of them replaced: the tensor keeps its name.
_REARRANGING = {
    *("view", "reshape", "unflatten", "flatten", "transpose", "permute", "movedim", "contiguous", "squeeze"),
    *("unsqueeze", "expand", "repeat_interleave", "narrow", "split", "split_with_sizes", "chunk", "unbind"),
    *("masked_fill", "dropout", "__getitem__"),
}
_ATTRIBUTES = {"mT", "T", "mH", "H"}
_LONGEST = 60  # a tensor whose text would be longer is written by its sizes


class Owned(NamedTuple):
    """A parameter or buffer: its submodule, that submodule's path, and the tensor's own name in it."""

    module: nn.Module
    path: str
    name: str

    @property
    def short_path(self) -> str:
        """The path from its last part that is not a number: `W_query` of `blocks.0.attention.W_query`."""
        parts = self.path.split(".")
        words = [i for i, part in enumerate(parts) if not part.isdigit()]
        return ".".join(parts[words[-1] :]) if words else self.path

    def runs(self, function: str) -> bool:
        """Does the submodule stand for this torch function, as nn.Linear does for `linear`?"""
        return bool(self.path) and type(self.module).__name__.lower() == function.replace("_", "")


class Owners:
    """Finds the owner of a tensor among the modules given, and among those that are running."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._owned: dict[int, Owned] = {}
        self._read: dict[int, nn.Module] = {}  # kept alive, so that no id is used again
        if module is not None:
            self._add(module)

    def find(self, tensor: Tensor) -> Owned | None:
        """The tensor's owner; None where no module that is running holds it."""
        owned = self._owned.get(id(tensor))
        # A block `with trace():` is given no module: look for it among the callers, the innermost first.
        frame = sys._getframe(1)
        while frame is not None and (owned is None or not owned.path):
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and "_modules" in vars(module) and id(module) not in self._read:
                self._add(module)
                owned = self._owned.get(id(tensor))
            frame = frame.f_back  # type: ignore[assignment]
        return owned

    def _add(self, module: nn.Module) -> None:
        self._read[id(module)] = module
        for path, child in module.named_modules():
            for name, tensor in (*child._parameters.items(), *child._buffers.items()):
                known = self._owned.get(id(tensor))
                if tensor is not None and (known is None or not known.path):
                    self._owned[id(tensor)] = Owned(child, path, name)


@dataclass(frozen=True)
class _Label:
    """What is known of a tensor."""

    operation: str  # what made it of tensors that have a name; "" if it was named since
    term: Term  # how it is written as an argument
    named_axes: int = 0  # the number of axes when it got its name; 0 if it has none
    owned: Owned | None = None  # for a parameter or buffer, or a copy of one


class Labels:
    """The names and operations of the tensors that pass through a trace."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._owners = Owners(module)
        self._labels: Any = WeakTensorKeyDictionary()

    def name(self, value: Tensor, name: str) -> str:
        """Give a tensor the name of its step; return the operation that made it."""
        label = self._find(value)
        operation, term = "input", Term(name)
        if label is not None and label.operation:
            operation = label.operation
            # Split or transposed, queries are still queries; heads joined again are something new.
            if 0 < label.named_axes <= value.dim():
                term = label.term
        elif label is not None:  # it has a name already, given by the module around this one
            operation = label.term.text
        self._labels[value] = _Label("", replace(term, summed=label.term.summed if label else 0), max(value.dim(), 1))
        return operation

    def follow(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Remember how a torch function made its result, which may be several tensors."""
        source = args[0] if args and isinstance(args[0], Tensor) else None
        label: _Label | None
        if source is not None and function in COPIES:
            label = self._find(source)
        elif source is not None and _rearranges(function):
            label = self._rearranged(source, _change(function, _with_terms(args[1:], self._term), kwargs))
        else:
            term = self.call(function, args, kwargs, self._term)
            label = _Label(term.text, term)
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and label is not None:
                self._labels[tensor] = label

    def call(
        self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any], term_of: Callable[[Tensor], Term]
    ) -> Term:
        """The call as text, its tensors written by `term_of`; a submodule's own function by the submodule's name."""
        if owned := self.owner(function, args, kwargs):
            return Term(f"{owned.short_path}({term_of(args[0]).text})")
        terms = _with_terms(args, term_of)
        if function == "scaled_dot_product_attention":
            return Term(attention_call(terms, _with_terms(tuple(kwargs.items()), term_of)))
        if args and isinstance(args[0], Tensor) and _rearranges(function):
            return Term(_change(function, terms[1:], kwargs).removeprefix("."))
        term = applied(function, terms)
        is_product = args and function in ("matmul", "__matmul__", "bmm", "mm")
        return replace(term, summed=args[0].shape[-1]) if is_product else term

    def owner(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Owned | None:
        """The submodule that this function with these arguments is the forward of."""
        if not args or not isinstance(args[0], Tensor):
            return None
        labels = [self._find(a) for a in (*args[1:], *kwargs.values()) if isinstance(a, Tensor)]
        owned = labels[0].owned if labels and labels[0] else None
        return owned if owned is not None and owned.runs(function) else None

    def _find(self, tensor: Tensor) -> _Label | None:
        label: _Label | None = self._labels.get(tensor)
        # A parameter made inside the trace was labelled by the function that initialised it.
        unknown = label is None or isinstance(tensor, nn.Parameter)
        if unknown and (owned := self._owners.find(tensor)):
            label = _Label("", Term(f"{owned.short_path}.{owned.name}".strip(".")), tensor.dim(), owned)
        return label

    def _term(self, tensor: Tensor) -> Term:
        label = self._find(tensor)
        return label.term if label is not None and len(label.term.text) <= _LONGEST else sizes(tensor)

    def _rearranged(self, source: Tensor, change: str) -> _Label:
        """The label of `source.change(…)`, `source.change` or `source[change]`."""
        before = self._find(source) or _Label("", sizes(source))
        is_method = change.endswith(")")
        if len(before.operation) > _LONGEST:
            operation = sizes(source).text + change
        elif before.operation:
            operation = Term(before.operation, before.term.binding).within(ATOM) + change
        else:  # a method of a tensor that has a name: `transpose(1, 2)` is enough
            operation = change.removeprefix(".") if is_method else before.term.text + change
        if before.named_axes and change.removeprefix(".") not in _ATTRIBUTES:
            return replace(before, operation=operation, owned=None)
        term = Term(before.term.within(ATOM) + change, summed=before.term.summed)
        return _Label(operation, term, before.named_axes)


def sizes(tensor: Tensor) -> Term:
    """A tensor written by its sizes: `2×7×6`."""
    return Term("×".join(map(str, tensor.shape)) or "number")


def _change(function: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """What follows the tensor's name: `.transpose(1, 2)`, `.mT`, `[:7, :7]`."""
    if function == "__getitem__":
        index = arguments[0] if isinstance(arguments[0], tuple) else (arguments[0],)
        return f"[{', '.join(map(written, index))}]"
    return f".{function}" if function in _ATTRIBUTES else f".{method_call(function, arguments, options)}"


def _rearranges(function: str) -> bool:
    in_place = function.endswith("_") and not function.endswith("__")
    return function in _REARRANGING or function in _ATTRIBUTES or in_place


def _with_terms(value: Any, term_of: Callable[[Tensor], Term]) -> Any:
    if isinstance(value, Tensor):
        return term_of(value)
    if isinstance(value, (tuple, list)):
        terms = [_with_terms(v, term_of) for v in value]
        return terms if isinstance(value, list) else tuple(terms)
    return value
