"""The picture of the course: "The cat sat on the mat", which grows as more of attention is the learner's own code.

Vectors and weights are made by hand, so that each head has something to find: head 0 looks from a verb to who does it,
head 1 from a place back to its preposition. What is drawn is what the learner's own functions make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.school.exercises.exercise import Picture

WORDS = ("The", "cat", "sat", "on", "the", "mat")
# How much each word is an article, an animal, a verb, a preposition, a place.
VECTORS = torch.tensor(
    [
        [1.0, 0.3, 0.0, 0.0, 0.2],
        [0.2, 1.2, 0.6, 0.0, 0.1],
        [0.0, 0.8, 1.0, 0.5, 0.3],
        [0.0, 0.0, 0.5, 1.0, 0.7],
        [1.0, 0.3, 0.0, 0.1, 0.2],
        [0.2, 0.1, 0.2, 0.5, 1.2],
    ]
)
EYE = torch.eye(len(WORDS))  # as values: then what attention returns are its weights
HEAD = 6  # numbers of a query
SMALL = 1e-3


def _reads(*pairs: tuple[int, float]) -> Tensor:
    """(5, 6): the first columns each read one feature, times a factor."""
    matrix = torch.zeros(VECTORS.shape[1], HEAD)
    for column, (feature, factor) in enumerate(pairs):
        matrix[feature, column] = factor
    return matrix


# Head 0: a verb asks for an animal, a noun for an article. Head 1: a place asks for a preposition, that for a verb.
QUERIES = _reads((2, 4.0), (1, 2.0)), _reads((4, 4.0), (3, 4.0))
KEYS = _reads((1, 3.0), (0, 2.0)), _reads((3, 3.0), (2, 2.0))


def queries(head: int = 0) -> Tensor:
    return VECTORS @ QUERIES[head]


def keys(head: int = 0) -> Tensor:
    return VECTORS @ KEYS[head]


def scores(head: int = 0) -> Tensor:
    """Scaled, without a mask."""
    scaled: Tensor = queries(head) @ keys(head).T / HEAD**0.5
    return scaled


def of_result(name: str, says: str, *arguments: Any, rows: Sequence[str] = WORDS) -> Picture:
    """A picture of what a function returns: (S,), (T, S) or (H, T, S) weights, or a batch of them."""
    shown = len(rows)

    def weights(results: Sequence[Any]) -> Tensor:
        result: Tensor = results[0][0] if isinstance(results[0], (tuple, list)) else results[0]
        matrix = result.float()[None] if result.dim() == 1 else result.float()
        heads: Tensor = matrix.reshape(-1, *matrix.shape[-2:])
        return heads[:2, -shown:]

    return Picture(name, [arguments], weights, says, tuple(rows))


WIDE = torch.cat([VECTORS, EYE], dim=1)  # the words, and which one each is: the values


def layer_state(heads: int = 2) -> dict[str, Tensor]:
    """Weights of a layer for WIDE that returns what each head took of each word, side by side; no biases."""
    none, width = torch.zeros(len(WORDS), HEAD), heads * HEAD
    state = {
        "W_query.weight": torch.cat([torch.cat([one, none]) for one in QUERIES[:heads]], dim=1).T,
        "W_key.weight": torch.cat([torch.cat([one, none]) for one in KEYS[:heads]], dim=1).T,
        "W_value.weight": torch.cat([torch.zeros(width, VECTORS.shape[1]), torch.cat(heads * [EYE])], dim=1),
        "out_proj.weight": torch.eye(width),
    }
    return state | {name.replace("weight", "bias"): torch.zeros(width) for name in state}


def side_by_side(results: Sequence[Any]) -> Tensor:
    """What stands in a vector for each word, (1, T, H · T), by head."""
    out: Tensor = results[0][0]
    return out.float().reshape(len(WORDS), -1, len(WORDS)).transpose(0, 1)


def of_layer(name: str, says: str, build: Sequence[Any] = (WIDE.shape[1], 12, 6, 0.0, 2), heads: int = 2) -> Picture:
    """The heads of a class; build: its arguments, at first d_in, d_out, context_length, dropout, num_heads."""
    return Picture(name, [(WIDE[None],)], side_by_side, says, WORDS, build=build, state=layer_state(heads))


def of_change(name: str, says: str, call: Callable[[int | None], tuple[Any, ...]]) -> Picture:
    """How much each word changes what comes out at each other: as shares. call(j): arguments with word j changed."""

    def weights(results: Sequence[Any]) -> Tensor:
        plain, *changed = (one[0].float() for one in results)
        sizes = torch.stack([(one - plain).norm(dim=-1) for one in changed], dim=1)
        shares: Tensor = sizes / sizes.sum(-1, keepdim=True)
        return shares[None]

    return Picture(name, [call(None), *(call(j) for j in range(len(WORDS)))], weights, says, WORDS)


def block_weights() -> dict[str, Any]:
    """Weights of a block 12 wide with both heads, as the exercises name them."""
    width, random = 2 * HEAD, torch.Generator().manual_seed(0)
    pad = torch.zeros(width - VECTORS.shape[1], HEAD)
    return {
        "W_query": torch.cat([torch.cat([one, pad]) for one in QUERIES], dim=1),
        "W_key": torch.cat([torch.cat([one, pad]) for one in KEYS], dim=1),
        "W_value": torch.eye(width),
        "out_proj": torch.eye(width),
        "norm_1": (torch.ones(width), torch.zeros(width)),
        "norm_2": (torch.ones(width), torch.zeros(width)),
        "up": 0.1 * torch.randn(width, 4 * width, generator=random),
        "down": 0.1 * torch.randn(4 * width, width, generator=random),
    }


def padded(t: Tensor = VECTORS) -> Tensor:
    """(6, 12): the words, with zeros to the width of a block."""
    return torch.cat([t, torch.zeros(len(t), 2 * HEAD - t.shape[1])], dim=1)
