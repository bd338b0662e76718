"""One projection for q, k and v."""

import torch

from regard.school.exercises import Function, Layer, Wrong, cat


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
            Wrong(
                "values before keys",
                "The order is queries, values, keys; keys come second.",
                lambda q, k, v: torch.cat([q, v, k]),
            ),
            Wrong(
                "order reversed",
                "Values come first; the order is queries, keys, values.",
                lambda q, k, v: torch.cat([v, k, q]),
            ),
            Wrong(
                "rows alternate",
                "The rows of the three matrices alternate; each matrix stays together.",
                lambda q, k, v: torch.stack([q, k, v], dim=1).flatten(0, 1),
            ),
            Wrong("one matrix three times", "W_query is there three times.", lambda q, k, v: torch.cat([q, q, q])),
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
            Wrong(
                "values before keys",
                "The second third is taken for the values; the keys come second.",
                lambda qkv: tuple(qkv.chunk(3, -1)[i] for i in (0, 2, 1)),
            ),
            Wrong("first third for all", "q, k and v are all the first third.", lambda qkv: (qkv.chunk(3, -1)[0],) * 3),
        ],
    ),
    Layer("FastMultiHeadAttention", causal=False),
]

STATE = {name: torch.cat([t, torch.zeros(len(t), 1)], dim=1) for name, t in cat.layer_state().items() if t.dim() == 2}
picture = cat.Picture(
    "FastMultiHeadAttention",
    [(torch.cat([cat.WIDE, torch.zeros(6, 1)], dim=1)[None],)],
    cat.side_by_side,
    "One product, taken apart by you: the same two heads as with three:",
    cat.WORDS,
    build=(12, 2),
    state={
        "qkv_proj.weight": torch.cat([STATE[f"W_{name}.weight"] for name in ("query", "key", "value")]),
        "qkv_proj.bias": torch.zeros(36),
        "out_proj.weight": torch.eye(12),
        "out_proj.bias": torch.zeros(12),
    },
)
