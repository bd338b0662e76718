"""Rung 1, simplified attention: each word becomes a mix of all words, in shares that their dot products decide.

What goes wrong without it: a word's vector is the same in every sentence. *sat* does not know who sat, *it* does not
know what it stands for. So each word takes something of the others. How much of each is a dot product: large for two
vectors that point the same way, and larger if they are long. So *with* takes .21 of *journey*, and .15 of itself.

Nothing is trainable yet. scores = x · xᵀ; weights = softmax(scores); context = weights · x.

How to read these files:
- `Float[Tensor, "T d"]` in a signature is a tensor of floating-point numbers and its shape: T words (tokens), each a
  vector of d numbers. A comment such as `# (T, T)` marks a new shape.
- `x.mT` is x with its last two axes swapped, a matrix transposed: (T, d) becomes (d, T), so `x @ x.mT` is (T, T).
- `step("scores", tensor)` returns the tensor unchanged. `regard.trace` records it under that name, with the operation
  that made it and its shape; without a trace it does nothing.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.steps import step
from regard.support.arguments import check_tensor

# Six words as vectors of three numbers: the example that `regard trace` follows up the ladder.
SENTENCE = ["Your", "journey", "starts", "with", "one", "step"]
VECTORS = torch.tensor(
    [
        [0.43, 0.15, 0.89],  # Your
        [0.55, 0.87, 0.66],  # journey
        [0.57, 0.85, 0.64],  # starts
        [0.22, 0.58, 0.33],  # with
        [0.77, 0.25, 0.10],  # one
        [0.05, 0.80, 0.55],  # step
    ]
)


def attend_by_loops(x: Float[Tensor, "T d"], query: int) -> tuple[list[float], list[float], list[float]]:
    """One word's scores, weights and context, number by number.

    >>> scores, weights, context = attend_by_loops(VECTORS, query=1)
    >>> [round(w, 4) for w in weights]
    [0.1385, 0.2379, 0.2333, 0.124, 0.1082, 0.1581]
    """
    rows = x.tolist()
    scores = []
    for row in rows:  # the dot product measures how alike this word and the query are
        score = 0.0
        for a, b in zip(rows[query], row, strict=True):
            score += a * b
        scores.append(score)

    total = 0.0
    for score in scores:
        total += math.exp(score)
    weights = []
    for score in scores:  # softmax: all positive, and together 1
        weights.append(math.exp(score) / total)

    context = [0.0] * len(rows[0])
    for weight, row in zip(weights, rows, strict=True):  # a sum of all words, each times its weight
        for i, number in enumerate(row):
            context[i] += weight * number
    return scores, weights, context


def simplified_attention(x: Float[Tensor, "T d"]) -> Float[Tensor, "T d"]:
    """The same for all words at once: two matrix products and a softmax.

    >>> simplified_attention(VECTORS)[1]
    tensor([0.4419, 0.6515, 0.5683])
    """
    check_tensor(x=x)
    step("x", x)
    scores = step("scores", x @ x.mT, why="every word, every word")  # (T, T)
    weights = step("weights", torch.softmax(scores, dim=-1))
    return step("context", weights @ x, why="words mixed by weight")  # (T, d)
