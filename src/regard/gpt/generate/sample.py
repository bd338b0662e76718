"""Choosing the next token: from a score for every token of the vocabulary to one token.

Chance comes from outside, one number between 0 and 1 for each token, so a text is the same wherever it is made: alone
or in a batch, one token at a time or recorded on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

FEW = 512  # on a CPU, the nucleus is first looked for among so many tokens: sorting all of them takes milliseconds


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    >>> Sampling(temperature=0).greedy
    True

    temperature: below 1 likely tokens become likelier still, above 1 all become more alike; 0 takes the best, always.
    top_k: only the k best tokens.
    top_p: only the best tokens that together have probability p, the nucleus; of those left by top_k, if both are given.
    """

    temperature: float | int = 1.0
    top_k: int | None = None
    top_p: float | int | None = None

    def __post_init__(self) -> None:
        if not _number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature ({self.temperature}) must be a number of at least 0; 0 takes the best token, 0.8 is usual"
            )
        if self.top_k is not None and (
            isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 1
        ):
            raise ValueError(f"top_k ({self.top_k}) must be a whole number of at least 1; leave it out for all tokens")
        if self.top_p is not None and (not _number(self.top_p) or not 0 < self.top_p <= 1):
            raise ValueError(f"top_p ({self.top_p}) must be above 0 and at most 1; 0.9 is usual, 1 keeps all tokens")

    @property
    def greedy(self) -> bool:
        """Is it always the best token, without chance?"""
        return self.temperature == 0 or self.top_k == 1


def choose(
    logits: Float[Tensor, "B V"], sampling: Sampling, noise: Float[Tensor, "B"] | None = None
) -> Int[Tensor, "B"]:
    """Choose a token for every row; `noise` is a number from 0 to 1 for each, where chance has a part in it.

    >>> scores = torch.tensor([[1.0, 3.0, 2.0]])
    >>> choose(scores, Sampling(temperature=0))
    tensor([1])
    >>> choose(scores, Sampling(top_k=2), noise=torch.tensor([0.9]))
    tensor([2])

    Tokens stand in a row, each as wide as its probability; the one that the noise falls on is chosen. In float32, and
    without asking the host on a GPU. A token of probability 0 is never chosen.
    """
    if sampling.greedy:
        return logits.argmax(-1)
    if noise is None:
        raise ValueError(f"{sampling} needs noise, a number from 0 to 1 for each row; see noises()")
    best = logits.amax(-1, keepdim=True).float()
    probabilities = ((logits.float() - best) / sampling.temperature).softmax(-1)
    order = None
    V, k, p = logits.shape[-1], sampling.top_k, sampling.top_p
    if k is not None and k < V:
        probabilities, order = probabilities.topk(k)
        if p is not None:
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    elif p is not None and p < 1:
        probabilities, order = _best_first(probabilities, p)
    if p is not None and p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= p, 0)
    picked = _fall(probabilities, noise)
    return picked if order is None else order.gather(-1, picked[..., None])[..., 0]


def check_scores(has_nan: bool) -> None:
    """Refuse to choose by scores that are NaN."""
    if has_nan:
        raise ValueError(
            "the model's scores after the prompt are NaN; are its weights finite, and its dtype wide enough?"
        )


def _best_first(probabilities: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Tokens by falling probability: all, or at least those whose probabilities add up to p."""
    if probabilities.device.type == "cpu" and probabilities.shape[-1] > FEW and not torch.compiler.is_compiling():
        few, order = probabilities.topk(FEW)
        if bool((few.sum(-1) >= p).all()):
            return few, order
    found = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    return found.values, found.indices


def _fall(probabilities: Tensor, noise: Tensor) -> Tensor:
    """Where along the row of probabilities the noise falls."""
    ends = probabilities.cumsum(-1)  # where each token's stretch ends; it need not end at 1
    places = torch.arange(ends.shape[-1], device=ends.device)
    there = probabilities > 0
    hit = there & (ends > noise[..., None] * ends[..., -1:])
    # The first that is hit; where rounding, or a noise of 1, is beyond all of them: the last that is there.
    return torch.where(hit, 2 * len(places) - places, torch.where(there, places, -1)).argmax(-1)


def noises(seed: int | None, count: int, batch: int = 1, first_row: int = 0) -> Float[Tensor, "count batch"]:
    """Chance for a text: `count` numbers from 0 to 1 for each row, 1 excluded, made on the CPU.

    >>> torch.equal(noises(7, count=5, batch=3)[:, 2], noises(9, count=5)[:, 0])
    True

    Row i of seed s is row 0 of seed s + i, so a text in a batch is the text of that seed alone. Without a seed, one is
    drawn by torch's own generator. `first_row` is the number of the first row, where a batch is made in parts.
    """
    seed = a_seed(seed)
    rows = [
        torch.rand(count, generator=torch.Generator().manual_seed((seed + i) % 2**32))
        for i in range(first_row, first_row + batch)
    ]
    return torch.stack(rows, dim=1) if rows else torch.zeros(count, 0)


def a_seed(seed: int | None) -> int:
    """The seed, if it is one; without one, one drawn by torch's own generator."""
    if seed is None:
        return int(torch.randint(2**31, ()))
    # torch's generator reads 32 bits of a seed; a larger one would silently be another's twin.
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed ({seed}) must be a whole number of at least 0 and below 2³²; try 7, or leave it out")
    return seed


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
