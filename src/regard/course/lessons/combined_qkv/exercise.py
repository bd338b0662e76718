"""One projection for queries, keys and values."""

import torch

from regard.exercises import Function, Layer, Wrong


def arguments(random):
    return tuple(torch.randn(5, 5, generator=random) for _ in range(3))


parts = [
    Function(
        "combine",
        arguments,
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
                "keys first",
                "The order is keys, queries, values; it is queries, keys, values.",
                lambda q, k, v: torch.cat([k, q, v]),
                why="Whoever takes the weights over trusts the order: nothing in the numbers tells it.",
            ),
        ],
    ),
    Layer("FastMultiHeadAttention", causal=False),
]
