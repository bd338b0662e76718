"""Positions: how a layer knows the order of its tokens. Attention alone does not.

Sinusoidal vectors are added to the embeddings; rotary turns queries and keys; ALiBi lowers distant scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import to_four_axes
from regard.attention.numerics import at_least_float32
from regard.steps import step
from regard.support.arguments import check_whole


def sinusoidal(length: int, width: int, device: torch.device | str | None = None) -> Float[Tensor, "length width"]:
    """Position vectors to add to embeddings: sines and cosines of slower and slower waves.

    >>> sinusoidal(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])

    Even columns are sin(position / 10000^(i/width)), odd ones the cosine.  (arXiv:1706.03762, section 3.5.)
    """
    if width < 2 or width % 2:
        raise ValueError(f"width ({width}) must be even, a sine and a cosine for each wave; try {max(width + 1, 2)}")
    angles = torch.arange(length, device=device)[:, None] * _waves(width, 10_000.0, device, torch.float32)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


@dataclass(frozen=True)
class Stretch:
    """RoPE scaling: slower rotations, for a model that reads longer texts than it was first trained on.

    >>> Stretch(8.0, original=8192)  # Llama 3.1
    Stretch(factor=8.0, original=8192, low=1.0, high=4.0)

    factor: how many times slower.
    original: the context the model was first trained with. Given it, only slow waves are stretched: those with fewer
        than `low` turns in that context fully, those with more than `high` not at all, and those between the two
        gradually (Llama 3). Otherwise all are stretched equally (transformers calls that linear).
    """

    factor: float
    original: int | None = None
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(f"factor ({self.factor}) must be at least 1; Llama 3.1 has 8, and 1 stretches nothing")
        if self.original is not None:
            check_whole(original=self.original)
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"low ({self.low}) must be above 0 and below high ({self.high}); Llama 3.1 has 1 and 4")

    def slowed(self, waves: Float[Tensor, "pairs"]) -> Float[Tensor, "pairs"]:
        """The frequencies, some or all of them lowered."""
        if self.original is None:
            return waves / self.factor
        turns = waves * (self.original / (2 * math.pi))
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return waves * (kept + (1 - kept) / self.factor)


@dataclass(frozen=True)
class Rotary:
    """Rotary positions: each pair of channels turns with the position, so scores depend on distance alone.

    >>> Rotary(base=10_000.0)
    Rotary(base=10000.0, interleaved=False)

    Channel i turns together with i + D/2 (Llama), or 2i with 2i + 1 when interleaved.  (arXiv:2104.09864.)
    stretch: RoPE scaling, for longer texts than the model was first trained on.
    """

    base: float = 10_000.0
    interleaved: bool = False
    stretch: Stretch | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.base) and self.base > 1):
            raise ValueError(f"the rotary base ({self.base}) must be above 1; 10000 is usual, 500000 for Llama 3")

    def rotate(
        self, q: Float[Tensor, "B H T D"], k: Float[Tensor, "B Hkv T D"], positions: Int[Tensor, "..."]
    ) -> tuple[Float[Tensor, "B H T D"], Float[Tensor, "B Hkv T D"]]:
        """Turn queries and keys by their positions, (T,) or (B, T)."""
        # In float32 whatever the dtype: at position 100,000 a bf16 angle would be off by hundreds of turns.
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
        cos, sin = self.angles(positions, q.shape[-1], wide)
        if cos.dim() == 3:
            cos, sin = cos[:, None], sin[:, None]  # (B, 1, T, D/2)
        return self._rotate_one(q, cos, sin), self._rotate_one(k, cos, sin)

    def angles(
        self, positions: Int[Tensor, "..."], width: int, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "... pairs"], Float[Tensor, "... pairs"]]:
        """Cosine and sine of the angle that each pair of channels turns by, at each position."""
        angles = positions.to(dtype)[..., None] * self.waves(width, positions.device, dtype)
        return angles.cos(), angles.sin()

    def waves(
        self, width: int, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "pairs"]:
        """The angle that each pair of channels turns by from one position to the next."""
        waves = _waves(width, self.base, device, dtype)
        return waves if self.stretch is None else self.stretch.slowed(waves)

    def __repr__(self) -> str:
        more = "" if self.stretch is None else f", stretch={self.stretch}"
        return f"Rotary(base={self.base}, interleaved={self.interleaved}{more})"

    def _rotate_one(self, t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = (t[..., 0::2], t[..., 1::2]) if self.interleaved else t.chunk(2, dim=-1)
        turned = [a * cos - b * sin, a * sin + b * cos]
        return (torch.stack(turned, dim=-1).flatten(-2) if self.interleaved else torch.cat(turned, dim=-1)).to(t.dtype)


def rotate_heads(
    rotary: Rotary | None,
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    positions: Int[Tensor, "..."] | None,
    start: int,
) -> tuple[Float[Tensor, "B H T D"], Float[Tensor, "B Hkv S D"]]:
    """Queries and keys turned by their positions, from `start` on unless given; unchanged without rotary."""
    if rotary is None:
        return q, k
    if positions is None:
        positions = torch.arange(start, start + q.shape[2], device=q.device)
    q, k = rotary.rotate(q, k, positions)
    step("turned", q, "rotary(queries)", "position becomes an angle")
    step("turned keys", k, "rotary(keys)", "position becomes an angle")
    return q, k


def alibi_slopes(
    num_heads: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Float[Tensor, "H"]:
    """How much each head's scores fall with every step of distance.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])

    A geometric sequence from 2^(−8/H); where H is not a power of two, every other slope of the next sequence is added.
    (arXiv:2108.12409.)
    """
    check_whole(num_heads=num_heads)
    power = 2 ** math.floor(math.log2(num_heads))
    dtype = torch.get_default_dtype() if dtype is None else dtype
    first = torch.arange(1, power + 1, device=device, dtype=dtype)
    extra = torch.arange(num_heads - power, device=device, dtype=dtype)
    return torch.cat([torch.exp2(-8.0 * first / power), torch.exp2(-4 * (2 * extra + 1) / power)])


def added_to_scores(
    call: QK, rows: Int[Tensor, "R"] | None = None, cols: Int[Tensor, "C"] | None = None
) -> Tensor | None:
    """What is added to the scaled scores of a call: its bias, ALiBi's, or both; None where there is neither.

    rows, cols: for these queries and keys only; a bias is for all keys.
    """
    bias = None if call.bias is None else at_least_float32(to_four_axes(call.bias))
    if bias is not None and rows is not None and bias.shape[2] > 1:
        bias = bias[:, :, rows]
    if call.alibi is None:
        return bias
    T, S = call.sizes[2:]
    rows = torch.arange(T, device=call.device) if rows is None else rows
    cols = torch.arange(S, device=call.device) if cols is None else cols
    distance = (rows[:, None] + call.shift - cols).abs()
    # In float64 the product must not be rounded to float32.
    slopes = call.alibi.double() if call.q.dtype is torch.float64 else call.alibi
    by_distance = (-slopes[:, None, None] * distance)[None]  # (1, H, T, S)
    return by_distance if bias is None else bias + by_distance


def _waves(width: int, base: float, device: torch.device | str | None, dtype: torch.dtype) -> Float[Tensor, "pairs"]:
    return 1.0 / base ** (torch.arange(0, width, 2, device=device, dtype=dtype) / width)
