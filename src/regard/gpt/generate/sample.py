"""Choosing the next token: from a score for every token of the vocabulary to one token.

Randomness is an argument, one number between 0 and 1 for each token, so a text is the same however it is generated:
alone or in a batch, one token at a time or by CUDA graphs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.gpt.generate.options import TINY, SamplingOptions
from regard.gpt.option_table import valid_seed

FEW = 512  # on a CPU, the nucleus is first searched among this many best tokens: sorting all takes milliseconds
NO_TOKEN = -1  # in place of a token where the scores are NaN or infinite, so that no distribution follows from them


def choose(
    logits: Float[Tensor, "B V"],
    sampling: SamplingOptions,
    noise: Float[Tensor, "B"] | None = None,
    best: Float[Tensor, "B"] | None = None,
) -> Int[Tensor, "B"]:
    """Choose a token for every row.

    noise: a number from 0 to 1 for each row, unless sampling is greedy.
    best: the largest score of each row, where it is known already. If it is not finite, the token means nothing.

    >>> scores = torch.tensor([[1.0, 3.0, 2.0]])
    >>> choose(scores, SamplingOptions(temperature=0))
    tensor([1])
    >>> choose(scores, SamplingOptions(top_k=2), noise=torch.tensor([0.9]))
    tensor([2])

    Inverse transform sampling: the first token whose cumulative probability exceeds the noise. In float32, and without
    synchronisation on a GPU. A token of probability 0 is never chosen.
    """
    if sampling.greedy:
        return logits.argmax(-1)
    if noise is None:
        raise ValueError(f"{sampling} needs noise, a number from 0 to 1 for each row; see noises()")
    best = logits.amax(-1) if best is None else best
    probabilities = ((logits.float() - best.float()[..., None]) / sampling.temperature).softmax(-1)
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
        probabilities = probabilities.masked_fill(before >= max(p, TINY), 0)
    if sampling.min_p:
        least = sampling.min_p * probabilities.amax(-1, keepdim=True)
        probabilities = probabilities.masked_fill(probabilities < least, 0)
    picked = _invert(probabilities, noise)
    return picked if order is None else order.gather(-1, picked[..., None])[..., 0]


def check_token(token: int, count: int) -> None:
    """Refuse NO_TOKEN. count: how many new tokens came before it."""
    if token == NO_TOKEN:
        place = "the prompt" if count == 0 else f"{count} new token{'s' * (count != 1)}"
        raise ValueError(
            f"the model's scores after {place} are NaN or infinite; are its weights finite, and its dtype wide enough?"
        )


def _best_first(probabilities: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Tokens by descending probability: all, or at least those whose probabilities add up to p."""
    if probabilities.device.type == "cpu" and probabilities.shape[-1] > FEW and not torch.compiler.is_compiling():
        few, order = probabilities.topk(FEW)
        if bool((few.sum(-1) >= p).all()):
            return few, order
    ordered = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    return ordered.values, ordered.indices


def _invert(probabilities: Tensor, noise: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds the noise."""
    cumulative = probabilities.cumsum(-1)  # its last value need not be 1
    indices = torch.arange(cumulative.shape[-1], device=cumulative.device)
    possible = probabilities > 0
    exceeds = possible & (cumulative > noise[..., None] * cumulative[..., -1:])
    # If none exceeds it, by rounding or a noise of 1: the last possible token.
    return torch.where(exceeds, 2 * len(indices) - indices, torch.where(possible, indices, -1)).argmax(-1)


def noises(seed: int | None, count: int, batch: int = 1, first_row: int = 0) -> Float[Tensor, "count batch"]:
    """Random numbers for a text: `count` numbers in [0, 1) for each row, drawn on the CPU.

    >>> torch.equal(noises(7, count=5, batch=3)[:, 2], noises(9, count=5)[:, 0])
    True

    Row i of seed s is row 0 of seed s + i, so a text in a batch is the text of that seed alone. Without a seed, one is
    drawn from torch's default generator. first_row: the index of the first row, where a batch is generated in parts.
    """
    seed = a_seed(seed)
    rows = [
        torch.rand(count, generator=torch.Generator().manual_seed((seed + i) % 2**32))
        for i in range(first_row, first_row + batch)
    ]
    return torch.stack(rows, dim=1) if rows else torch.zeros(count, 0)


def a_seed(seed: int | None) -> int:
    """The seed, checked; None draws one from torch's default generator."""
    if seed is None:
        return int(torch.randint(2**31, ()))
    valid_seed("seed", seed)
    return seed
