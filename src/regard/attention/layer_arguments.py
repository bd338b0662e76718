"""What MultiHeadAttention accepts: its constructor's arguments, the inputs of a call, and the textbook's state dict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.cache import Cache, Slot
from regard.attention.masks import CAUSAL, EVERYTHING, Mask
from regard.attention.masks import window as window_mask
from regard.attention.positions import Rotary
from regard.support.arguments import check_dropout, check_heads, check_length, check_tensor, check_whole, name_of

if TYPE_CHECKING:
    from regard.attention.layer import MultiHeadAttention


def check_sizes(
    d_in: int,
    d_out: int,
    context_length: int | None,
    dropout: float,
    num_heads: int,
    num_kv_heads: int,
    scale: float | None,
) -> None:
    """The sizes of a layer fit together."""
    check_whole(d_in=d_in, d_out=d_out, num_heads=num_heads, num_kv_heads=num_kv_heads)
    if context_length is not None:
        check_whole(context_length=context_length)
    check_dropout(dropout)
    check_heads(d_out, num_heads)
    if num_heads % num_kv_heads:
        fits = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
        raise ValueError(
            f"num_heads ({num_heads}) must be divisible by num_kv_heads ({num_kv_heads}); try one of {fits}"
        )
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        head_dim = d_out // num_heads
        raise ValueError(f"scale ({scale}) must be above 0; 1/√head_dim = {head_dim**-0.5:.4g} is usual")


def as_rotary(rotary: bool | float | Rotary | None, head_dim: int, alibi: bool) -> Rotary | None:
    """Rotary positions in any accepted form: True, a base, a Rotary, or none."""
    if rotary is False or rotary is None:
        return None
    if alibi:
        raise ValueError("rotary and alibi are two answers to one question, where a token stands; choose one")
    if head_dim % 2:
        raise ValueError(f"rotary turns channels in pairs, but head_dim ({head_dim}) is odd; choose an even head_dim")
    return rotary if isinstance(rotary, Rotary) else Rotary() if rotary is True else Rotary(base=float(rotary))


def layer_mask(causal: bool, window: int | None) -> Mask:
    """The mask of a layer: the future is hidden, or what lies outside a window, or both."""
    rule = CAUSAL if causal else EVERYTHING
    if window is None:
        return rule
    return rule & window_mask(window) if causal else window_mask(window)


def check_inputs(
    layer: MultiHeadAttention,
    x: Tensor,
    context: Tensor | None,
    mask: Mask,
    cache: Slot | None,
    positions: Tensor | None,
) -> None:
    """The inputs of a call fit the layer."""
    if isinstance(cache, Cache):
        raise ValueError("this cache is for all layers of a model; pass the part of this layer: cache=cache[0]")
    if layer.context_length is not None:
        check_length(x.shape[1] + (0 if cache is None else cache.length), layer.context_length)
    if context is not None:
        _check_context(layer, context, x, cache)
    if cache is None:
        mask.check_lengths(x.shape[1] if context is None else context.shape[1])
    if positions is not None:
        check_tensor(positions=positions)
        _check_positions(layer, positions, x)


def _check_positions(layer: MultiHeadAttention, positions: Tensor, x: Tensor) -> None:
    B, T = x.shape[:2]
    if layer.rotary is None:
        raise ValueError(
            "positions are for rotary, and this layer has none; leave them out, or build it with rotary=True"
        )
    if positions.is_floating_point() or positions.dtype is torch.bool:
        raise ValueError(f"positions must be whole numbers, but are {name_of(positions.dtype)}; try positions.long()")
    if tuple(positions.shape) not in ((T,), (B, T), (1, T)):
        raise ValueError(
            f"positions has shape {tuple(positions.shape)} but x has B={B}, T={T}; give ({T},) or ({B}, {T})"
        )


def _check_context(layer: MultiHeadAttention, context: Tensor, x: Tensor, cache: Slot | None) -> None:
    check_tensor(context=context)
    if context.dim() != 3 or context.shape[0] != x.shape[0] or context.shape[2] != layer.d_in:
        raise ValueError(
            f"context has shape {tuple(context.shape)} but must be (B={x.shape[0]}, S, d_in={layer.d_in}); "
            "project it to the layer's width first"
        )
    wrong = [n for n in ("causal", "window", "rotary", "alibi") if getattr(layer, n) not in (None, False)]
    if wrong:
        without = ", ".join("window=None" if n == "window" else f"{n}=False" for n in wrong)
        raise ValueError(
            f"context is another sequence, where {' and '.join(wrong)} means nothing; "
            f"build a layer for cross-attention with {without}"
        )
    if cache is not None:
        raise ValueError("a cache holds keys of x, not of context; pass one or the other")


def drop_textbook_mask(state_dict: dict[str, Any], prefix: str, causal: bool) -> str | None:
    """Remove the T × T mask that the textbook's layer saves; return an error where it is not the layer's own mask."""
    mask = state_dict.pop(prefix + "mask", None)
    if mask is not None and not causal:
        return f"{prefix}mask is a causal mask, but this layer was built with causal=False; use causal=True"
    if mask is not None and not mask.is_meta and not _hides_the_future(mask):
        return f"{prefix}mask hides something else than the future; pass it as mask= in forward instead"
    return None


def _hides_the_future(mask: Tensor) -> bool:
    hidden = mask != 0
    return mask.dim() == 2 and bool(hidden.equal(torch.ones_like(hidden).triu(1)))
