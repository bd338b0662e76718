"""One attention call as one value, shared by attend(), its observers, the kernels and regard.watch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask, as_mask, dense, to_four_axes
from regard.support.arguments import check_dropout, check_tensor
from regard.support.hidden_scores import may_see


@dataclass(frozen=True, kw_only=True)
class QK:
    """What decides the weights of one attention: queries, keys, and what is added to their scores or hidden.

    weights = softmax(scale · q · kᵀ + bias − slope · distance, hidden keys at −∞)
    """

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, Hkv, S, D); Hkv divides H
    mask: Mask = EVERYTHING
    scale: float = 1.0
    bias: Tensor | None = None  # float, broadcasts to (B, H, T, S); may hide a key (support/hidden_scores.py)
    alibi: Tensor | None = None  # (H,) slopes

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, H, T, S)."""
        B, H, T, _ = self.q.shape
        return B, H, T, self.k.shape[2]

    @property
    def shift(self) -> int:
        """Query i is at key position i + shift: the last query is at the last key."""
        return self.k.shape[2] - self.q.shape[2]

    @property
    def device(self) -> torch.device:
        return self.q.device

    def allowed(self, rows: Int[Tensor, "R"], cols: Int[Tensor, "C"]) -> Bool[Tensor, "#B #H R C"]:
        """Which of these keys (columns) each of these queries (rows) may attend to."""
        return to_four_axes(self.mask.tile(rows, cols, self.shift)).expand(-1, -1, *rows.shape, *cols.shape)


@dataclass(frozen=True, kw_only=True)
class Call(QK):
    """The inputs of one attention: what decides its weights, and the values that they mix.

    out = dropout(weights) · v
    """

    v: Tensor  # (B, Hkv, S, Dv)
    dropout: float = 0.0

    @property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v


def checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | Sequence[int] | None,
    scale: float | None,
    dropout: float,
    alibi: Tensor | None,
    bias: Tensor | None = None,
) -> Call:
    """The arguments as one value, with sizes that fit together."""
    check_tensor(q=q, k=k, v=v)
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"q, k and v must be (B, H, T, D), but have {q.dim()}, {k.dim()} and {v.dim()} axes")
    B, H, T, D = q.shape
    Hkv, S = k.shape[1], k.shape[2]
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; every key needs a value")
    if k.shape[0] != B or k.shape[3] != D:
        raise ValueError(f"q is {tuple(q.shape)} and k is {tuple(k.shape)}; batch and head width must be the same")
    if Hkv == 0 or H % Hkv:
        raise ValueError(f"{H} query heads cannot share {Hkv} key heads evenly; make num_heads a multiple of {Hkv}")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale ({scale}) must be above 0; 1/√{D} = {D**-0.5:.4g} is usual")
    if dropout:
        check_dropout(dropout)
    if alibi is not None and tuple(alibi.shape) != (H,):
        raise ValueError(f"alibi has shape {tuple(alibi.shape)} but there are {H} heads; use alibi_slopes({H})")
    whole_mask = as_mask(mask)
    if bias is not None:
        whole_mask = whole_mask & dense(may_see(bias))
    whole_mask.check(B, H, T, S)
    scale = usual_scale(D) if scale is None else scale
    return Call(q=q, k=k, v=v, mask=whole_mask, scale=scale, bias=bias, alibi=alibi, dropout=dropout)


def usual_scale(D: int) -> float:
    """1/√D: scores of independent numbers of variance 1 have variance 1 again."""
    return 1 / math.sqrt(max(D, 1))


def scaling_in_words(call: Call) -> str:
    """How a trace shows the step."""
    D = call.qkv[0].shape[-1]
    return f"scores / √{D}" if call.scale == usual_scale(D) else f"scores × {call.scale:.4g}"
