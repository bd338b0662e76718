"""FlexAttention: its mask_mod as a Mask; with a score_mod, its weights, where they fit in memory.

Nothing is compiled while a model is watched, so FlexAttention runs its own eager code, which holds T × S scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import EVERYTHING, Mask, Padding
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.calls.visibility import may_see

LIMIT = 1 << 26  # the most weights, B · H · T · S, that are computed for a score_mod: 256 MiB


@dataclass(frozen=True, repr=False, eq=False)
class MaskMod(Mask):
    """A mask_mod of FlexAttention: may query q_idx of head h in text b attend to kv_idx?"""

    allows: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    texts: int
    heads: int
    device: torch.device  # of the tensors that the function indexes

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        b, h = torch.arange(self.texts, device=self.device), torch.arange(self.heads, device=self.device)
        allowed: Tensor = over_all_indices(self.allows)(b, h, rows.to(self.device), cols.to(self.device))
        return allowed.to(rows.device)

    @property
    def kind(self) -> str:
        return getattr(self.allows, "__name__", "mask_mod")


def over_all_indices(function: Callable[..., Tensor], takes_score: bool = False) -> Callable[..., Tensor]:
    """Vectorise a function of one b, h, q_idx and kv_idx (after a score, for a score_mod) over all of them."""
    for position in (3, 2, 1, 0):
        axes = tuple(0 if i == position else None for i in range(4))
        function = torch.vmap(function, in_dims=((0, *axes) if takes_score else axes))
    return function


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> WatchedCall:
    """The arguments of the flex_attention operator as a call."""
    q, k, score_mod, block_mask, scale = _read_arguments(*args, **kwargs)
    q, k = q.detach(), k.detach().expand(q.shape[0], -1, -1, -1)
    mask = _mask_of(block_mask, q)
    if getattr(score_mod, "__name__", "") == "_identity":
        return WatchedCall(QK(q=q, k=k, scale=scale, mask=mask))
    scores = _modified_scores(q, k, score_mod, scale)
    scores = scores.masked_fill(~mask.dense(q.shape[2], k.shape[2], q.device), -torch.inf)
    return WatchedCall(OwnWeights(scores.softmax(-1), Padding(may_see(scores).any(2).any(1))))


def without_edges(
    args: tuple[Any, ...], kwargs: dict[str, Any], removed: Mask
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the operator with the scores of removed edges at −∞."""
    q, k, score_mod, _, _ = _read_arguments(*args, **kwargs)
    allowed = removed.dense(q.shape[2], k.shape[2], q.device).expand(q.shape[0], q.shape[1], -1, -1)

    def score_mod_without_edges(score: Tensor, b: Tensor, h: Tensor, row: Tensor, col: Tensor, *more: Any) -> Tensor:
        return torch.where(allowed[b, h, row, col], score_mod(score, b, h, row, col, *more), -torch.inf)

    named = dict(zip(("query", "key", "value", "score_mod"), args, strict=False))
    if "score_mod" in named:
        return (*args[:3], score_mod_without_edges, *args[4:]), kwargs
    return args, kwargs | {"score_mod": score_mod_without_edges}


def _mask_of(block_mask: Any, q: Tensor) -> Mask:
    """The mask_mod, last in a block mask."""
    mask_mod = block_mask[-1] if block_mask else None
    if not callable(mask_mod) or getattr(mask_mod, "__name__", "") == "noop_mask":
        return EVERYTHING
    counts = next((t for t in block_mask if isinstance(t, Tensor)), None)  # (B or 1, H or 1, …)
    texts, heads = q.shape[:2] if counts is None or counts.dim() < 2 else counts.shape[:2]
    return MaskMod(mask_mod, texts, heads, q.device)


def _modified_scores(q: Tensor, k: Tensor, score_mod: Callable[..., Tensor], scale: float) -> Tensor:
    """(B, H, T, S)."""
    B, H, T, S = (*q.shape[:3], k.shape[2])
    if B * H * T * S > LIMIT:
        raise ValueError(
            f"a FlexAttention with a score_mod and {B} × {H} × {T} × {S} weights; they are written out to be seen, "
            f"up to {LIMIT} of them: watch a shorter text"
        )
    scores = (q.float() @ k.repeat_interleave(H // k.shape[1], 1).float().mT) * scale
    indices = (torch.arange(n, device=q.device) for n in (B, H, T, S))
    return over_all_indices(score_mod, takes_score=True)(scores, *indices)


def _read_arguments(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: float, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Any, Any, float]:
    return query, key, score_mod, block_mask, float(scale)
