"""The text of an operation: how a call of a torch function reads, given the text of its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# How tightly the outermost operator of a text binds; a looser one needs brackets inside a tighter one.
SUM, PRODUCT, ATOM = 1, 2, 3

_INFIX = {
    **dict.fromkeys(("matmul", "__matmul__", "bmm", "mm"), ("@", PRODUCT)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), ("×", PRODUCT)),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__", "__rtruediv__"), ("/", PRODUCT)),
    **dict.fromkeys(("add", "__add__", "__radd__"), ("+", SUM)),
    **dict.fromkeys(("sub", "subtract", "__sub__", "__rsub__", "rsub"), ("−", SUM)),
}
_REVERSED = {"__rmul__", "__rtruediv__", "__radd__", "__rsub__", "rsub"}
_PREFIX = {"neg": "−", "__neg__": "−", "bitwise_not": "~", "logical_not": "~", "__invert__": "~"}
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_TENSORS_ONLY = {"softmax", "log_softmax", "gelu", "silu"}  # the other arguments say how, not what


@dataclass(frozen=True)
class Term:
    """How a tensor is written as an argument."""

    text: str
    binding: int = ATOM
    summed: int = 0  # the size that a matrix product summed over: scores are divided by its root

    def within(self, binding: int) -> str:
        """The text, in brackets where an operator of this binding would take it apart."""
        return f"({self.text})" if self.binding < binding else self.text


def applied(name: str, arguments: Sequence[Any]) -> Term:
    """The result of a torch function, written with its arguments; each is a Term or a plain value."""
    if name in _INFIX and len(arguments) == 2:
        left, right = reversed(arguments) if name in _REVERSED else arguments
        return _infix(*_INFIX[name], left, right)
    if name in _PREFIX and len(arguments) == 1:
        return Term(_PREFIX[name] + _as_term(arguments[0]).within(ATOM))
    return Term(method_call(name, [a for a in arguments if name not in _TENSORS_ONLY or isinstance(a, Term)]))


def method_call(name: str, arguments: Sequence[Any], options: dict[str, Any] | None = None) -> str:
    """`name(arguments)`, without the flags that torch passes on: True, False and None."""
    texts = [written(a) for a in arguments if not _is_flag(a)]
    texts += [f"{key}={written(value)}" for key, value in (options or {}).items() if not _is_flag(value)]
    return f"{name.strip('_')}({', '.join(texts)})"


def attention_call(arguments: Sequence[Any], options: Sequence[tuple[str, Any]]) -> str:
    """A call of torch's scaled_dot_product_attention: mask and scale are options of it, and worth their names."""
    named = {**dict(zip(_ATTENTION, arguments, strict=False)), **dict(options)}
    texts = [written(named.pop(name)) for name in _ATTENTION[:3] if name in named]
    texts += [f"{name}={written(value)}" for name, value in named.items() if isinstance(value, Term) or value]
    return f"scaled_dot_product_attention({', '.join(texts)})"


def written(value: Any) -> str:
    """A value as Python would write it, in few characters.

    >>> written((slice(None, 7), -math.inf, 0.125, 3))
    '(:7, −∞, 0.125, 3)'
    """
    if isinstance(value, Term):
        return value.text
    if isinstance(value, slice):
        parts = [value.start, value.stop] + [value.step] * (value.step is not None)
        return ":".join("" if part is None else written(part) for part in parts)
    if isinstance(value, (list, tuple)):
        texts = [written(v) for v in value]
        if isinstance(value, list) and len(texts) > 4:
            texts = [texts[0], "…", texts[-1]]
        joined = ", ".join(texts) + "," * (isinstance(value, tuple) and len(texts) == 1)
        return f"[{joined}]" if isinstance(value, list) else f"({joined})"
    if isinstance(value, float):
        return f"{value:.4g}".replace("inf", "∞").replace("-", "−")
    return "..." if value is Ellipsis else str(value)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as it is printed: 4 × 100 × 768."""
    return " × ".join(map(str, shape)) or "one number"


def _infix(operator: str, binding: int, left: Any, right: Any) -> Term:
    if operator in "×/" and isinstance(left, Term) and isinstance(right, float):
        operator, right = _scale(operator, right, left.summed)
    a, b = _as_term(left), _as_term(right)
    return Term(f"{a.within(binding)} {operator} {b.within(binding + 1)}", binding)


def _scale(operator: str, number: float, summed: int) -> tuple[str, Any]:
    """Division by the root of the size that was summed over, or the multiplication that amounts to it, as a root."""
    if operator == "×" and summed and math.isclose(number, summed**-0.5):
        return "/", Term(f"√{summed}")
    if operator == "/" and 0 < number < 1e6:
        square = round(number**2)
        is_root = math.isclose(number**2, square, rel_tol=1e-9)
        if is_root and (square == summed or not number.is_integer()):
            return "/", Term(f"√{square}")
    return operator, number


def _as_term(value: Any) -> Term:
    return value if isinstance(value, Term) else Term(written(value))


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)
