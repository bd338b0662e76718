"""What MultiHeadAttention accepts: its arguments, the inputs of a call, a textbook's state dict; its description."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.attention.cache import Cache, Slot
from regard.attention.masks import CAUSAL, EVERYTHING, Mask, as_mask
from regard.attention.masks import window as window_mask
from regard.attention.positions import Rotary
from regard.support import arguments as checks
from regard.support.arguments import check_tensor, check_whole, name_of

if TYPE_CHECKING:
    from regard.attention.layer import MultiHeadAttention


def check_layer_sizes(
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
    checks.check_dropout(dropout)
    checks.check_heads(d_out, num_heads)
    if num_heads % num_kv_heads:
        fits = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
        rule = f"num_heads ({num_heads}) must be divisible by num_kv_heads ({num_kv_heads})"
        raise ValueError(f"{rule}; try one of {fits}")
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        usual = (d_out // num_heads) ** -0.5
        raise ValueError(f"scale ({scale}) must be above 0; 1/√head_dim = {usual:.4g} is usual")


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
    if window is None:
        return CAUSAL if causal else EVERYTHING
    return CAUSAL & window_mask(window) if causal else window_mask(window)


def check_and_join_masks(
    layer: MultiHeadAttention,
    x: Tensor,
    source: Tensor | None,
    mask: Mask | Tensor | Sequence[int] | None,
    cache: Slot | None,
    positions: Tensor | None,
) -> Mask:
    """The inputs of a call fit the layer; returns the mask of the call, the layer's own included."""
    checks.check_width(x, layer.d_in)
    projection = layer._modules["W_query"]  # from the dict: nn.Module's attribute lookup is slow, at every call
    weight = projection._parameters.get("weight") if type(projection) is nn.Linear else None
    if weight is not None and weight.dtype is not x.dtype and not torch.is_autocast_enabled(x.device.type):
        remedy = f"use x.to({weight.dtype}), layer.to({x.dtype}), or torch.autocast"
        raise ValueError(f"x is {name_of(x.dtype)} but this layer's weights are {name_of(weight.dtype)}; {remedy}")
    whole_mask = layer.mask if mask is None else layer.mask & as_mask(mask)
    if isinstance(cache, Cache):
        raise ValueError("this cache is for all layers of a model; pass the part of this layer: cache=cache[0]")
    if layer.context_length is not None:
        checks.check_length(x.shape[1] + (0 if cache is None else cache.length), layer.context_length)
    if source is not None:
        _check_source(layer, source, x, cache)
    if cache is None:
        whole_mask.check_lengths(x.shape[1] if source is None else source.shape[1])
    if positions is not None:
        check_tensor(positions=positions)
        _check_positions(layer, positions, x)
    return whole_mask


def _check_positions(layer: MultiHeadAttention, positions: Tensor, x: Tensor) -> None:
    (B, T), shape = x.shape[:2], tuple(positions.shape)
    if layer.rotary is None:
        remedy = "leave them out, or build it with rotary=True"
        raise ValueError(f"positions are for rotary, and this layer has none; {remedy}")
    if positions.is_floating_point() or positions.dtype is torch.bool:
        raise ValueError(f"positions must be whole numbers, but are {name_of(positions.dtype)}; try positions.long()")
    if shape not in ((T,), (B, T), (1, T)):
        raise ValueError(f"positions has shape {shape} but x has B={B}, T={T}; give ({T},) or ({B}, {T})")


def _check_source(layer: MultiHeadAttention, source: Tensor, x: Tensor, cache: Slot | None) -> None:
    check_tensor(source=source)
    if source.dim() != 3 or source.shape[0] != x.shape[0] or source.shape[2] != layer.d_in:
        right = f"(B={x.shape[0]}, S, d_in={layer.d_in}); project it to the layer's width first"
        raise ValueError(f"source has shape {tuple(source.shape)} but must be {right}")
    wrong = [n for n in ("causal", "window", "rotary", "alibi") if getattr(layer, n) not in (None, False)]
    if wrong:
        without = ", ".join("window=None" if n == "window" else f"{n}=False" for n in wrong)
        remedy = f"build a layer for cross-attention with {without}"
        raise ValueError(f"source is another sequence, where {' and '.join(wrong)} means nothing; {remedy}")
    if cache is not None:
        raise ValueError("a cache holds keys of x, not of source; pass one or the other")


def drop_textbook_mask(layer: MultiHeadAttention, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Before a state dict is loaded: remove the T × T mask that the textbook's layer saves, if it hides the future."""
    errors = rest[-1]  # torch's list of messages
    mask = state_dict.pop(prefix + "mask", None)
    if mask is not None and not layer.causal:
        errors.append(f"{prefix}mask is a causal mask, but this layer was built with causal=False; use causal=True")
    elif mask is not None and not mask.is_meta:
        hidden = mask != 0
        if mask.dim() != 2 or not hidden.equal(torch.ones_like(hidden).triu(1)):
            errors.append(f"{prefix}mask hides something else than the future; pass it as mask= in forward instead")


def describe_layer(layer: MultiHeadAttention) -> str:
    """Sizes, options that differ from their default, and the parameter count."""
    defaults = {"d_in": 0, "d_out": 0, "context_length": 0, "dropout": None, "num_heads": 0}  # always shown
    defaults |= {"num_kv_heads": layer.num_heads, "causal": True, "window": None, "rotary": None, "scale": None}
    defaults |= {"alibi": False}
    shown = [f"{name}={getattr(layer, name)}" for name in defaults if getattr(layer, name) != defaults[name]]
    return ", ".join([*shown, f"parameters={sum(p.numel() for p in layer.parameters()):,}"])
