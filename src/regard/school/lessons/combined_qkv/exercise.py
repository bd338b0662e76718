"""One projection for q, k and v."""

import torch

from regard.school.exercises import Function, Layer, Wrong


def weights(random):
    return tuple(torch.randn(5, 5, generator=random) for _ in range(3))


def products(random):
    return (torch.randn(2, 6, 15, generator=random),)


ORDER = "Whoever takes the weights over trusts the order: nothing in the numbers tells it."

parts = [
    Function(
        "combine",
        weights,
        right=lambda q, k, v: torch.cat([q, k, v]),
        wrong=[
            Wrong(
                "side by side",
                "The weights lie side by side, (d_model, 3 · d_model); they belong one below the other.",
                lambda q, k, v: torch.cat([q, k, v], dim=-1),
                why="nn.Linear keeps (out, in): three times as many outputs are three times as many rows.",
            ),
            Wrong(
                "stacked",
                "torch.stack makes a new axis: (3, d_model, d_model). The weight of nn.Linear has two axes.",
                lambda q, k, v: torch.stack([q, k, v]),
                why="torch.cat joins along an axis that is there already.",
            ),
            Wrong(
                "transposed",
                "Each weight is transposed; nn.Linear keeps (out, in), and so do the three that you get.",
                lambda q, k, v: torch.cat([q.T, k.T, v.T]),
            ),
            Wrong(
                "added",
                "The weights are added up; the three products would be one sum, and nobody could take it apart.",
                lambda q, k, v: q + k + v,
            ),
            Wrong(
                "keys first",
                "The order is keys, queries, values; it is queries, keys, values.",
                lambda q, k, v: torch.cat([k, q, v]),
                why=ORDER,
            ),
        ],
    ),
    Function(
        "take_apart",
        products,
        right=lambda qkv: qkv.chunk(3, dim=-1),
        wrong=[
            Wrong(
                "keys first",
                "The first third is taken for the keys, the second for the queries; it is queries, keys, values.",
                lambda qkv: tuple(qkv.chunk(3, dim=-1)[i] for i in (1, 0, 2)),
                why=ORDER,
            ),
            Wrong(
                "alternating",
                "Every third number is taken for q; the first third of the numbers is q.",
                lambda qkv: tuple(qkv[..., i::3] for i in range(3)),
                why="The rows of the weight stand one matrix below the other, and so do the numbers of the product.",
            ),
            Wrong(
                "tokens cut",
                "The tokens are cut into three groups; it is the last axis, the width, that holds q, k and v.",
                lambda qkv: qkv.chunk(3, dim=1),
            ),
            Wrong(
                "texts cut",
                "The batch is cut; it is the last axis, the width, that holds q, k and v.",
                raises="not enough values to unpack",
                why="chunk cuts the first axis unless dim says which.",
            ),
            Wrong(
                "many pieces of 3",
                "split(3) makes pieces of 3 numbers; 3 pieces were meant.",
                raises="too many values to unpack",
            ),
        ],
    ),
    Layer("FastMultiHeadAttention", causal=False),
]
