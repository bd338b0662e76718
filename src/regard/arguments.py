"""Argument checks that all layers share; each error gives the rule, the values and the remedy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def check_width(x: Tensor, d_in: int) -> None:
    """x must be a tensor of shape (B, T, d_in)."""
    check_tensor(x=x)
    if x.dim() != 3:
        raise ValueError(f"x must be (B, T, d_in), but has shape {tuple(x.shape)}; add a batch axis with x[None]")
    if x.shape[2] != d_in:
        raise ValueError(
            f"x has width {x.shape[2]} but this layer was built with d_in={d_in}; "
            f"project it first, or build the layer with d_in={x.shape[2]}"
        )


def check_tensor(**values: Any) -> None:
    """Values must be tensors; the error says how to make one of a list or a NumPy array."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, not {type(value).__name__}; {tensor_remedy(name, value)}")


def tensor_remedy(name: str, value: Any) -> str:
    """How to make a tensor of a value, for messages.

    >>> tensor_remedy("x", [[1.0, 2.0]])
    'pass torch.tensor(x)'
    """
    if isinstance(value, (list, tuple)):
        return f"pass torch.tensor({name})"
    return f"pass torch.as_tensor({name})" if hasattr(value, "__array__") else "pass a tensor"


def check_length(tokens: int, context_length: int) -> None:
    """A text must fit context_length."""
    if tokens > context_length:
        raise ValueError(
            f"{tokens} tokens do not fit context_length={context_length}; "
            f"pass at most {context_length}, or build the layer with context_length={tokens} or more"
        )


def check_whole(**sizes: int) -> None:
    """Sizes must be whole numbers of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} ({size}) must be a whole number of at least 1")


def check_heads(d_out: int, num_heads: int) -> None:
    """The heads share the width evenly."""
    if d_out % num_heads:
        below, above = d_out // num_heads * num_heads, (d_out // num_heads + 1) * num_heads
        widths = f"{below} or {above}" if below else str(above)
        heads = near_divisors(d_out, num_heads)
        plural = "head" if heads == "1" else "heads"
        raise ValueError(
            f"d_out ({d_out}) must be divisible by num_heads ({num_heads}); try {widths}, or {heads} {plural}"
        )


def near_divisors(width: int, heads: int) -> str:
    """The numbers of heads near this one that do divide the width, for messages: the next below and two above.

    >>> near_divisors(768, 7), near_divisors(7, 5), near_divisors(5, 12)
    ('6, 8 or 12', '1 or 7', '5')
    """
    divisors = [n for n in range(1, width + 1) if width % n == 0]
    near = [*[n for n in divisors if n < heads][-1:], *[n for n in divisors if n > heads][:2]]
    *first, last = map(str, near)
    return f"{', '.join(first)} or {last}" if first else last


def check_dropout(dropout: float) -> None:
    """Dropout is a share of the weights."""
    check_share("dropout", dropout, "0.1 is usual, 0.0 is none")


def check_share(name: str, share: float, usual: str) -> None:
    """A share is at least 0 and below 1."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(f"{name} ({share}) must be at least 0 and below 1; {usual}")


def autocast_dtype(kind: str) -> torch.dtype | None:
    """The dtype of torch.autocast on this device type; None where it is off or not supported (meta)."""
    return torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else None


def is_exporting() -> bool:
    """Is torch.export running? By its own flag: before torch 2.12, torch.compiler.is_exporting() is True in every graph."""
    return bool(torch.compiler._is_exporting_flag)


def is_integer(t: Tensor) -> bool:
    """Does the tensor hold whole numbers? Booleans are not numbers."""
    return not t.dtype.is_floating_point and not t.dtype.is_complex and t.dtype is not torch.bool


def describe_tensor(t: Tensor) -> str:
    """Dtype and shape, for messages: "bool of shape (2, 3)"."""
    return f"{name_of(t.dtype)} of shape {tuple(t.shape)}"


def name_of(dtype: torch.dtype) -> str:
    """A dtype without torch's prefix: "float32"."""
    return str(dtype).removeprefix("torch.")


def list_few(t: Tensor) -> str:
    """The first six numbers of a tensor, for messages: "5, 3, 0"."""
    few = [str(int(i)) for i in t.flatten()[:6]]
    return ", ".join(few) + (", …" if t.numel() > 6 else "")
