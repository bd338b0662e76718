"""Positions: what rotary positions and biases by position look like in numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.mistakes.search import TOLERANCE, same

_BASE = 10000.0  # of the wavelengths of rotary positions


def angles(before: Tensor, after: Tensor) -> Tensor | None:
    """The angles (T, pairs) by which vectors (B, H, T, D) were rotated in pairs of numbers; None where they were not.

    Pairs are neighbours or stand half a vector apart; only the first numbers of a vector may be rotated.

    >>> x = torch.tensor([[3.0, 4.0]]).view(1, 1, 1, 2)
    >>> angles(x, torch.tensor([[-4.0, 3.0]]).view(1, 1, 1, 2)).item() == torch.pi / 2
    True
    """
    D = before.shape[-1]
    if before.shape != after.shape:
        return None
    for size in (D, D // 2, D // 4):
        if size < 2 or size % 2 or not same(before[..., size:], after[..., size:]):
            continue
        for neighbours in (False, True):
            a, b = (_pairs(t[..., :size], neighbours) for t in (before, after))
            turned = b / a
            angle = turned.angle()
            if not bool(((turned.abs() - 1).abs() < TOLERANCE).all()):
                continue
            if bool(((angle - angle[:1, :1]).cos() > 1 - 1e-9).all()):
                return angle[0, 0]
    return None


def _pairs(t: Tensor, neighbours: bool) -> Tensor:
    t = t.to(torch.float64)
    if neighbours:
        return torch.complex(t[..., ::2].contiguous(), t[..., 1::2].contiguous())
    a, b = t.chunk(2, dim=-1)
    return torch.complex(a.contiguous(), b.contiguous())


def is_usual(turned: Tensor) -> bool:
    """Are these the angles of rotary positions: position × 10000^(−pair / pairs)?"""
    T, pairs = turned.shape
    speeds = _BASE ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    steps = torch.arange(T, dtype=torch.float64)[:, None]
    from_first = turned - turned[:1]
    return bool(((from_first - steps * speeds).cos() > 1 - 1e-9).all())


def is_alibi(bias: Tensor, visible: Tensor) -> bool:
    """Is a bias (H, T, T) that of ALiBi: −slope × distance, the slopes of the heads 2^(−8 h / H)?"""
    H, T, _ = bias.shape
    slopes = 2.0 ** (-8 * torch.arange(1, H + 1, dtype=torch.float64) / H)
    place = torch.arange(T, dtype=torch.float64)
    expected = -slopes[:, None, None] * (place[:, None] - place).abs()
    return same(bias.masked_fill(~visible, 0.0), expected.masked_fill(~visible, 0.0), 1e-4)


def is_two_steps(bias: Tensor, visible: Tensor) -> bool:
    """Has a bias (H, T, T) one number before or on the diagonal and one after it, as a mask that was added?"""
    for one, seen in zip(bias, visible, strict=True):
        for offset in (0, 1):
            above = torch.ones_like(seen).triu(offset)
            parts = (one[seen & above], one[seen & ~above])
            if not all(len(part) == 0 or bool((part == part[0]).all()) for part in parts):
                continue
            break
        else:
            return False
    return True
