"""A long text: its weights as a grid, the largest ones exactly, and what each token gives and gets.

T × S weights of 16,384 tokens are 268 million numbers for each head. A page holds instead, for each head, how much of
the attention of a block of queries is on a block of keys (512 × 512 cells, each row adds up to 1), the eight largest
weights of each query, and for each token its entropy and what it receives. js/data/long-head.js reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.heads.report.report import Seen
from regard.heads.report.views import SeenLayer
from regard.show.page.encode import Encoding, encode, is_triangle, pack_pairs, thumbnails

LONGEST_EXACT = 512  # tokens up to which a page holds every weight
GRID = 512  # rows and columns of the grid
TOP = 8  # exact weights of each query
_ROWS = 256  # queries that are looked at together
_LARGEST = 65_504.0  # that a 16-bit float holds
MOST = 65_504  # tokens: a key is stored in 16 bits, and what a key receives as a 16-bit float


@dataclass(frozen=True)
class LongLayer:
    """A layer of a text that is too long for all its weights.

    mass: the share of a query block's attention on a key block. visible: may any query of the cell see any key of it?
    keys, weights: the largest weights of each query and their keys; key −1 past the visible ones.
    times: received ÷ what even weights would give the key; NaN where no query may see it.
    """

    mass: Float[Tensor, "H rows cols"]
    visible: Bool[Tensor, "H rows cols"]
    keys: Int[Tensor, "H T top"]
    weights: Float[Tensor, "H T top"]
    entropy: Float[Tensor, "H T"]
    received: Float[Tensor, "H S"]
    times: Float[Tensor, "H S"]

    @staticmethod
    def of(seen: Seen, layer: int, text: int, grid: int = GRID, heads: Sequence[int] | None = None) -> LongLayer:
        """A layer of a report, or some heads of it, for one text of the batch; T × S is never in memory."""
        view = seen[layer]
        numbers = list(range(len(view)) if heads is None else heads)
        _, _, T, S = seen.sizes()[layer][0]
        if max(T, S) > MOST:
            raise ValueError(f"a page holds texts of up to {MOST} tokens; this one has {max(T, S)}; watch a part of it")
        mean = torch.stack([view[head].map(grid)[text] for head in numbers]).double().cpu()
        columns = torch.arange(mean.shape[-1] + 1) * S // mean.shape[-1]
        top = [view[head].top(TOP) for head in numbers]
        received = view.received[text, numbers].cpu().float()
        even = even_received(view, text, numbers)
        return LongLayer(
            mass=(mean * columns.diff()).nan_to_num(0.0).float(),
            visible=view.visible_cells(grid)[text, numbers],
            keys=torch.stack([one.keys[text].cpu() for one in top]),
            weights=torch.stack([one.weights[text].cpu().float() for one in top]),
            entropy=view.entropy[text, numbers].cpu().float(),
            received=received,
            times=torch.where(even > 0, received / even, torch.nan).clamp(max=_LARGEST),
        )

    @property
    def encoding(self) -> Encoding:
        """How the grid is stored: below the diagonal only, where the mask hides everything above."""
        return Encoding("linear16", is_triangle(self.visible))

    def block(self, head: int, encoding: Encoding | None = None) -> bytes:
        """One head as bytes, not compressed. encoding: of the grid. [default: a triangle where all heads are one]

        The grid; for each rank the steps from query to key, then for each rank the weights · 65535 (0 is none);
        entropy, received and times as float16. Each is stored as all its high bytes, then all its low bytes,
        which compresses better.
        """
        T, S = self.keys.shape[1], self.received.shape[1]
        keys, weights = self.keys[head].numpy(), self.weights[head].double().numpy()
        steps = (np.arange(T)[:, None] + (S - T) - keys) & 0xFFFF
        codes = np.where(keys < 0, 0, np.rint(weights.clip(0, 1) * 65535))
        statistics = [one[head].half().numpy() for one in (self.entropy, self.received, self.times)]
        parts = [steps.T.astype(np.uint16), codes.T.astype(np.uint16), *(one.view(np.uint16) for one in statistics)]
        grid = encode(self.mass[head], self.visible[head], encoding or self.encoding)
        return grid + b"".join(map(_planes, parts))

    def thumbnails(self, most: int) -> bytes:
        """All heads as small pictures."""
        return thumbnails(self.mass, self.visible, most).tobytes()

    def strongest(self) -> bytes:
        """The largest weight of each query of each head, and its key."""
        return pack_pairs(self.keys[..., 0], self.weights[..., 0])


def even_received(view: SeenLayer, text: int, heads: Sequence[int]) -> Float[Tensor, "H S"]:
    """What each key would receive if every query spread its weights evenly over the keys that it may see.

    Of heads whose keys are seen by equally many queries, one is looked at: their mask is the same.
    """
    counts = view.queries_per_key()[text, list(heads)].cpu()
    _, _, T, S = view.record.sizes
    found: dict[bytes, Tensor] = {}
    for head, count in zip(heads, counts, strict=True):
        key = count.numpy().tobytes()
        if key in found:
            continue
        found[key] = torch.zeros(S)
        for first in range(0, T, _ROWS):
            visible = view[head].visible(range(first, min(T, first + _ROWS)))[text].cpu().float()
            found[key] += (visible / visible.sum(-1, keepdim=True).clamp(min=1)).sum(0)
    return torch.stack([found[count.numpy().tobytes()] for count in counts])


def exact_block(seen: Seen, layer: int, head: int, text: int) -> tuple[dict[str, Any], bytes]:
    """Queries and keys of a head in 16 bits, from which a browser computes any weight: exp(scale · q·k − lse).

    Returns what js/data/exact-weights.js needs to read the bytes (width, scale, causal, and the largest error among the
    eight largest weights of all queries), and the bytes: q and k as float16, lse as float32, little-endian.
    """
    q, k, lse, scale, causal = seen[layer, head].score_parts()
    q, k, lse = q[text].cpu().half(), k[text].cpu().half(), lse[text].cpu().float()
    if not (q.isfinite().all() and k.isfinite().all()):
        too_large = "exceed 65504, the largest 16-bit float; leave it out of exact"
        raise ValueError(f"queries or keys of head {layer}.{head} {too_large}")
    top = seen[layer, head].top(TOP)
    keys, weights = top.keys[text].cpu(), top.weights[text].cpu()
    scores = torch.stack([(q.float() * k.float()[rank.clamp(min=0)]).sum(-1) for rank in keys.T], -1) * scale
    again = (scores - lse[:, None]).exp()
    error = float((again - weights).abs()[(keys >= 0) & lse.isfinite()[:, None]].max())
    content = b"".join(one.numpy().tobytes() for one in (q, k, lse))
    return {"width": q.shape[-1], "scale": scale, "causal": causal, "error": error}, content


def _planes(codes: np.ndarray) -> bytes:
    """All high bytes, then all low bytes."""
    return (codes >> 8).astype(np.uint8).tobytes() + (codes & 255).astype(np.uint8).tobytes()
