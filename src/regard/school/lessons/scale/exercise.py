"""Scaled dot-product attention."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong


def arguments(random):
    return (
        torch.randn(2, 5, 6, generator=random),
        torch.randn(2, 3, 6, generator=random),
        torch.randn(2, 3, 6, generator=random),
    )


parts = [
    Function(
        "attention",
        arguments,
        right=lambda q, k, v: (q @ k.mT / 6**0.5).softmax(-1) @ v,
        wrong=[
            Wrong(
                "no scale",
                "The scores are not divided by √head_dim.",
                lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
                why="You measured it: the variance of a score is head_dim. The softmax becomes too sharp.",
            ),
            Wrong(
                "missing root",
                "The scores are divided by head_dim; divide by √head_dim.",
                lambda q, k, v: (q @ k.mT / 6).softmax(-1) @ v,
                why="The variance is head_dim, and dividing by c divides the variance by c². So c is the root.",
            ),
            Wrong(
                "multiplied",
                "The scores are multiplied by √head_dim, not divided by it.",
                lambda q, k, v: (q @ k.mT * 6**0.5).softmax(-1) @ v,
            ),
            Wrong(
                "scaled after the softmax",
                "The weights are divided by √head_dim; the scores must be, before the softmax.",
                lambda q, k, v: (q @ k.mT).softmax(-1) / 6**0.5 @ v,
                why="Weights that were divided do not add up to 1, and the softmax has been too sharp already.",
            ),
            Wrong(
                "root of the number of keys",
                "The scores are divided by the root of the number of keys; it is the length of a query.",
                lambda q, k, v: (q @ k.mT / 3**0.5).softmax(-1) @ v,
                why="A score is a sum of head_dim products, however many keys there are.",
            ),
            Wrong(
                "root of the number of queries",
                "The scores are divided by the root of the number of queries; it is the length of a query.",
                lambda q, k, v: (q @ k.mT / 5**0.5).softmax(-1) @ v,
                why="A score is a sum of head_dim products, however many queries there are.",
            ),
            Wrong(
                "softmax over the queries",
                "The softmax goes over the queries: for each key, the shares of all queries add up to 1.",
                lambda q, k, v: (q @ k.mT / 6**0.5).softmax(1) @ v,
                why="A query divides its attention among the keys. They are the last axis, dim=-1.",
            ),
            Wrong(
                "softmax over the batch",
                "The softmax goes over the texts of the batch, which have nothing to do with each other.",
                lambda q, k, v: (q @ k.mT / 6**0.5).softmax(0) @ v,
                why="A query divides its attention among the keys. They are the last axis, dim=-1.",
            ),
            Wrong(
                "no softmax",
                "The values are mixed by the scaled scores: softmax is missing.",
                lambda q, k, v: q @ k.mT / 6**0.5 @ v,
            ),
            Wrong(
                "keys mixed",
                "The keys are mixed; the values must be.",
                lambda q, k, v: (q @ k.mT / 6**0.5).softmax(-1) @ k,
                why="Keys are for finding, values are what is handed over.",
            ),
            Wrong(
                "all axes swapped",
                "k.T swaps all three axes, (2, 3, 6) becomes (6, 3, 2), and the batch is at the end; k.mT swaps two.",
                raises="size of tensor a (2) must match the size of tensor b (6)",
            ),
            Wrong(
                "not transposed",
                "The shapes of q @ k do not match, (2, 5, 6) and (2, 3, 6): the keys must be columns.",
                raises="Expected size for first two dimensions of batch2 tensor to be: [2, 6] but got: [2, 3]",
            ),
        ],
    )
]

picture = cat.of_result(
    "attention",
    "Queries and keys of their own, and your scale. A verb looks for who does it: sat, for cat:",
    *(t[None] for t in (cat.queries(), cat.keys(), cat.EYE)),
)
