"""What attend() and attend_in_steps() accept: the arguments of a call, as one value whose sizes fit together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import Mask, as_mask, dense
from regard.support.arguments import check_dropout, check_tensor
from regard.support.hidden_scores import may_see


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
    """1/√D, which brings the variance of scores back near 1."""
    return 1 / math.sqrt(max(D, 1))


def scaling_in_words(call: Call) -> str:
    """How a trace shows the step."""
    D = call.qkv[0].shape[-1]
    return f"scores / √{D}" if call.scale == usual_scale(D) else f"scores × {call.scale:.4g}"
