"""FlexAttention: the rule of its block mask as a mask of ours; a changed score only where it fits in memory.

While a model is watched nothing is compiled, so FlexAttention runs by its own eager code, which holds T × S scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks import EVERYTHING, Mask, Padding
from regard.heads.call import WatchedCall
from regard.heads.visibility import may_see

LIMIT = 1 << 26  # entries of B · H · T · S that a score_mod may be written out for: 256 MiB


@dataclass(frozen=True, repr=False, eq=False)
class Rule(Mask):
    """A mask_mod: may query q_idx of head h in text b attend to kv_idx?"""

    allows: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    texts: int
    heads: int
    device: torch.device  # of what the rule looks things up in

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        b, h = torch.arange(self.texts, device=self.device), torch.arange(self.heads, device=self.device)
        found: Tensor = everywhere(self.allows)(b, h, rows.to(self.device), cols.to(self.device))
        return found.to(rows.device)

    @property
    def kind(self) -> str:
        return getattr(self.allows, "__name__", "mask_mod")


def everywhere(function: Callable[..., Tensor], scores: bool = False) -> Callable[..., Tensor]:
    """A function of one b, h, q_idx and kv_idx (after its score), for all of them at once."""
    for place in (3, 2, 1, 0):
        axes = tuple(0 if i == place else None for i in range(4))
        function = torch.vmap(function, in_dims=((0, *axes) if scores else axes))
    return function


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> WatchedCall:
    """The WatchedCall of the operator's arguments."""
    q, k, score_mod, block_mask, scale = _named(*args, **kwargs)
    q, k = q.detach(), k.detach()
    k = k.expand(q.shape[0], -1, -1, -1)
    B, H, T, S = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    mask: Mask = EVERYTHING
    mask_mod = block_mask[-1] if block_mask else None
    if callable(mask_mod) and getattr(mask_mod, "__name__", "") != "noop_mask":
        counts = next((t for t in block_mask if isinstance(t, Tensor)), None)  # (B or 1, H or 1, …)
        texts, heads = (B, H) if counts is None or counts.dim() < 2 else counts.shape[:2]
        mask = Rule(mask_mod, texts, heads, q.device)
    if getattr(score_mod, "__name__", "") == "_identity":
        return WatchedCall("", q=q, k=k, scale=scale, mask=mask)
    if B * H * T * S > LIMIT:
        raise ValueError(
            f"a FlexAttention with a score_mod and {B} × {H} × {T} × {S} weights; they are written out to be seen, "
            f"up to {LIMIT} of them: watch a shorter text"
        )
    shared = k.repeat_interleave(H // k.shape[1], 1)
    scores = (q.float() @ shared.float().mT) * scale
    places = (torch.arange(n, device=q.device) for n in (B, H, T, S))
    scores = everywhere(score_mod, scores=True)(scores, *places)
    scores = scores.masked_fill(~mask.dense(T, S, q.device), -torch.inf)
    return WatchedCall("", weights=scores.softmax(-1), mask=Padding(may_see(scores).any(2).any(1)))


def _named(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: float, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Any, Any, float]:
    return query, key, score_mod, block_mask, float(scale)
