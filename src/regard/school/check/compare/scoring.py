"""Scoring: the factor, the bias and the mask with which a softmax of queries and keys gives the weights of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.school.check.compare.linear_maps import is_close
from regard.school.check.compare.products import RunHeads


@dataclass(frozen=True)
class Scoring:
    """weights = softmax(factor · q·k + bias) where visible; the bias of a row is known but for a number."""

    factor: Tensor  # (H,)
    bias: Tensor  # (H, T, S)
    visible: Tensor  # (H, T, S)
    cap: float = 0.0  # of scores that are bounded by tanh
    is_relative: bool = False  # something is added that depends on a query or a key, and on positions
    fault: str = ""  # what is wrong with the cap


NOT_BACK = "its capped scores are not multiplied by the cap again"
AFTER_MASK = "its scores are capped after the mask"


def scoring_of(head: RunHeads, caps: Sequence[float] = ()) -> Scoring | None:
    """The factor, bias and mask with which a softmax of q·k gives the weights; None where none does."""
    seen = head.weights > 0
    visible = seen.all(0)
    if not bool((seen == visible).all()) or not bool(visible.any()):
        return None
    logs = torch.where(visible, head.weights, 1.0).log()
    D = head.q.shape[-1]
    bounded = [(cap, cap * torch.tanh(head.raw * s / cap), s) for cap in caps for s in (D**-0.5, 1.0)]
    for cap, raw, slope in [(0.0, head.raw, 1.0), *bounded]:
        fitted = _fitted(logs, raw, visible)
        if fitted is None:
            continue
        factor, bias = fitted
        for times, fault in ((1.0, ""), (cap, NOT_BACK)):
            if not cap or bool(((factor * times - 1).abs() < 1e-5).all()):
                return Scoring(factor * times * slope, bias, visible, cap, fault=fault)
    past = torch.ones_like(visible).tril()
    for cap, raw, slope in bounded if bool(visible.all()) and not bool(past.all()) else ():
        fitted = _fitted(torch.where(past, logs, 0.0), raw, past)
        if fitted is not None and bool(((fitted[0] - 1).abs() < 1e-5).all()):
            level = torch.where(past, logs - raw, 0.0).sum(-1, keepdim=True) / past.sum(-1, keepdim=True)
            if bool(((logs - level + cap)[..., ~past[0]].abs() < 1e-5 * cap).all()):
                return Scoring(fitted[0] * slope, fitted[1], past, cap, fault=AFTER_MASK)
    return _relative_scoring(head, logs, visible)


def _fitted(logs: Tensor, raw: Tensor, visible: Tensor) -> tuple[Tensor, Tensor] | None:
    """The factor (H,) and the bias (H, T, S) with which scores give these logarithms of weights; None where none do."""
    mine, theirs = _centred(logs, visible), _centred(raw, visible)
    mean_mine, mean_theirs = mine.mean(0), theirs.mean(0)
    a, b = mine - mean_mine, theirs - mean_theirs
    power = (b * b).sum((0, 2, 3))
    if not bool((power > 0).all()):
        return None
    factor = (a * b).sum((0, 2, 3)) / power
    is_all = is_close(b * factor[:, None, None], a, 1e-5)
    return (factor, mean_mine - factor[:, None, None] * mean_theirs) if is_all else None


def _relative_scoring(head: RunHeads, logs: Tensor, visible: Tensor) -> Scoring | None:
    """Scores q·k / √D, to which something is added that depends on q or k, and on their positions."""
    B, H, T, D = head.q.shape
    S = head.k.shape[2]
    factor = D**-0.5
    rest = logs - factor * head.raw
    if B < 3 * D + 5:
        return None
    for h in range(H):
        for i in range(T):
            seen = [j for j in range(S) if bool(visible[h, i, j])]
            for j in seen[1:]:
                goal = (rest[:, h, i, j] - rest[:, h, i, seen[0]])[:, None]
                ones = torch.ones(B, 1, dtype=goal.dtype)
                known = torch.cat((head.q[:, h, i], head.k[:, h, j], head.k[:, h, seen[0]], ones), -1)
                if not is_close(known @ torch.linalg.lstsq(known, goal).solution, goal, 1e-6):
                    return None
    flat = torch.zeros(H, T, S, dtype=torch.float64)
    return Scoring(torch.full((H,), factor, dtype=torch.float64), flat, visible, is_relative=True)


def _centred(t: Tensor, visible: Tensor) -> Tensor:
    """Each row without its mean over what is visible; 0 elsewhere."""
    t = torch.where(visible, t, 0.0)
    count = visible.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(visible, t - t.sum(-1, keepdim=True) / count, 0.0)
