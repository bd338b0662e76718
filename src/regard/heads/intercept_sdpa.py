"""scaled_dot_product_attention as torch calls it: what went in, as a WatchedCall, and the LSE where the kernel knows it.

The kernel itself runs as it would have: nothing here computes attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention.masks import CAUSAL, EVERYTHING, Dense, Mask, Padding
from regard.heads.call import WatchedCall

aten = torch.ops.aten
# The kernels that keep the LSE, second of what they return; some only when asked by a flag, at this place.
KERNELS: dict[Any, int | None] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: None,
    aten._scaled_dot_product_flash_attention.default: None,
    aten._scaled_dot_product_efficient_attention.default: 4,
    aten._scaled_dot_product_cudnn_attention.default: 4,
}


@dataclass(frozen=True, repr=False, eq=False)
class FromTheStart(Mask):
    """Causal with query 0 at key 0, as SDPA's flag has it; causal() has the last query at the last key."""

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return cols <= rows[:, None]

    @property
    def kind(self) -> str:
        return "causal from the start"


class Overhear(TorchDispatchMode):
    """Keeps the LSE that a kernel of SDPA computes anyway."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lse: Tensor | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping it would import it, and take seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in KERNELS:
            flag = KERNELS[func]
            if flag is not None and len(args) > flag:
                args = (*args[:flag], True, *args[flag + 1 :])
            found = func(*args, **(kwargs or {}))
            self.lse = found[1]
            return found
        return func(*args, **(kwargs or {}))


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Tensor | None]:
    """SDPA's result, and the LSE where its kernel had one."""
    with Overhear() as ear:
        out = function(*args, **kwargs)
    return out, ear.lse


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any], lse: Tensor | None, batch: int | None) -> WatchedCall:
    """The WatchedCall of SDPA's arguments.

    (T, D) is one head, (N, T, D) is N texts of one head unless `batch` divides N, and axes before the last four are
    batch. Keys that the causal flag hides from everyone are left out, so that the last query is at the last key.
    """
    query, key, attn_mask, is_causal, scale = _named(*args, **kwargs)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    q, q_lengths = _even(query.detach())
    k, k_lengths = _even(key.detach())
    if torch.is_autocast_enabled(q.device.type):
        q, k = _as_autocast(q), _as_autocast(k)
    if attn_mask is not None:
        is_causal, attn_mask = _special(attn_mask, is_causal)
    if q.dim() < 2 or k.dim() < 2:
        raise ValueError(f"queries of shape {tuple(query.shape)} and keys of shape {tuple(key.shape)}")
    q, k, attn_mask = four_axes(q, k, attn_mask, batch)
    mask: Mask = EVERYTHING
    bias = real = None
    if k_lengths is not None:
        mask = Padding(k_lengths)
    if q_lengths is not None:
        real = torch.arange(q.shape[2], device=q.device) < q_lengths[:, None]
    T, S = q.shape[2], k.shape[2]
    if is_causal:
        k = k if S <= T else k[:, :, :T]
        rule = CAUSAL if S >= T else FromTheStart()
        mask = rule if mask is EVERYTHING else mask & rule
    elif attn_mask is not None and attn_mask.dtype is torch.bool:
        mask = as_rule(attn_mask) if mask is EVERYTHING else mask & as_rule(attn_mask)
    elif attn_mask is not None:
        bias = _as_autocast(attn_mask.detach())
    rough = q.device.type == "cpu" and q.element_size() == 2  # there torch sums exponentials of few digits
    plain = bias is None and (mask is EVERYTHING or mask is CAUSAL) and not rough
    return WatchedCall(
        "", q=q, k=k, scale=scale, mask=mask, bias=bias, lse=_fitted(lse, q) if plain else None, real=real
    )


def as_rule(seen: Bool[Tensor, "_ _ _ _"]) -> Mask:
    """A mask tensor, True = may attend; one row for all queries and heads is padding."""
    one_row = seen.shape[3] > 1 and all(seen.shape[i] == 1 or seen.stride(i) == 0 for i in (1, 2))
    return Padding(seen[:, 0, 0]) if one_row else Dense(seen)


def four_axes(q: Tensor, k: Tensor, mask: Tensor | None, batch: int | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """q, k and mask with the axes (B, H, …), broadcast to each other as SDPA does."""
    if q.dim() == k.dim() == 4 and q.shape[0] == k.shape[0] and q.shape[1] >= k.shape[1]:
        return q, k, None if mask is None else _to_axes(mask.detach(), 4)
    axes = max(q.dim(), k.dim())
    q, k = _to_axes(q, axes), _to_axes(k, axes)
    mask = None if mask is None else _to_axes(mask.detach(), axes)
    if axes == 2:
        return q[None, None], k[None, None], None if mask is None else mask[None, None]
    if axes == 3:
        N = max(q.shape[0], k.shape[0])
        B = batch if batch and N % batch == 0 else N
        q, k = (t.expand(N, -1, -1).unflatten(0, (B, N // B)) for t in (q, k))
        if mask is not None:
            mask = mask[None] if mask.shape[0] == 1 else mask.unflatten(0, (B, N // B))
        return q, k, mask
    lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    heads = max(q.shape[-3], k.shape[-3])  # one query head for many keys' heads is repeated; the reverse need not be
    q = q.expand(*lead, heads, -1, -1).flatten(0, -4)
    k = k.expand(*lead, -1, -1, -1).flatten(0, -4)
    if mask is not None and axes > 4:
        mask = mask.expand(*lead, -1, -1, -1).flatten(0, -4)
    return q, k, mask


def _named(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None, bool, float | None]:  # fmt: skip
    return query, key, attn_mask, is_causal, scale


def _even(t: Tensor) -> tuple[Tensor, Tensor | None]:
    """Texts of different lengths (a nested tensor) padded to one, and their lengths."""
    if not t.is_nested:
        return t, None
    lengths = torch.tensor([part.shape[-2] for part in t.unbind()], device=t.device)
    return torch.nested.to_padded_tensor(t.contiguous(), 0.0), lengths


def _special(attn_mask: Tensor, is_causal: bool) -> tuple[bool, Tensor | None]:
    """torch.nn.attention.bias's causal masks hold no entries; the one aligned at the end is written out."""
    if type(attn_mask).__name__ != "CausalBias":
        return is_causal, attn_mask
    if attn_mask.variant.name == "UPPER_LEFT":  # type: ignore[attr-defined]
        return True, None
    T, S = attn_mask.seq_len_q, attn_mask.seq_len_kv  # type: ignore[attr-defined]
    return False, CAUSAL.dense(T, S, attn_mask.device)


def _as_autocast(t: Tensor) -> Tensor:
    """As the kernel gets it: autocast acts below the place where we look."""
    if t.dtype is torch.float64 or not torch.is_autocast_enabled(t.device.type):
        return t
    return t.to(torch.get_autocast_dtype(t.device.type))


def _to_axes(t: Tensor, axes: int) -> Tensor:
    return t.reshape((1,) * (axes - t.dim()) + tuple(t.shape)) if t.dim() < axes else t


def _fitted(lse: Tensor | None, q: Tensor) -> Tensor | None:
    """(B, H, T), whatever the kernel appends: cuDNN an axis, the memory-efficient one a filled-up last block."""
    if lse is None or lse.dim() not in (3, 4):
        return None
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    if lse.shape == q.shape[:3] and lse.dtype is wide:
        return lse.detach()
    lse = (lse.squeeze(-1) if lse.dim() == 4 else lse)[..., : q.shape[2]]
    return lse.detach().to(wide) if lse.shape == q.shape[:3] else None
