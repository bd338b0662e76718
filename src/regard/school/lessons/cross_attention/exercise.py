"""Cross-attention: two texts."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong


def arguments(random):
    x, other = torch.randn(2, 5, 11, generator=random), torch.randn(2, 7, 11, generator=random)
    return x, other, *(torch.randn(11, 3, generator=random) * 0.5 for _ in range(3))


def attend(q, k, v, divisor=None, hidden=False, dim=-1):
    scores = q @ k.mT / (q.shape[-1] ** 0.5 if divisor is None else divisor)
    if hidden:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(dim) @ v


parts = [
    Function(
        "cross_attention",
        arguments,
        right=lambda x, other, Q, K, V: attend(x @ Q, other @ K, other @ V),
        wrong=[
            Wrong(
                "self-attention",
                "`other` is not read: q, k and v all come from x.",
                lambda x, other, Q, K, V: attend(x @ Q, x @ K, x @ V),
            ),
            Wrong(
                "self-attention of the other",
                "x is not read: q, k and v all come from `other`, so there are S rows in place of T.",
                lambda x, other, Q, K, V: attend(other @ Q, other @ K, other @ V),
            ),
            Wrong(
                "texts exchanged",
                "The queries come from `other`, and keys and values from x, so there are S rows in place of T.",
                lambda x, other, Q, K, V: attend(other @ Q, x @ K, x @ V),
                why="The output has one row per query: x needs answers, so x asks.",
            ),
            Wrong(
                "no scale",
                "The scores are not divided by √D.",
                lambda x, other, Q, K, V: attend(x @ Q, other @ K, other @ V, 1),
            ),
            Wrong(
                "scale by √E",
                "The scores are divided by √E, the width of x; it is √D, the width of q and k.",
                lambda x, other, Q, K, V: attend(x @ Q, other @ K, other @ V, x.shape[-1] ** 0.5),
                why="A score is a sum of D products.",
            ),
            Wrong(
                "causal mask",
                "A causal mask hides words of `other`; all of it may be read.",
                lambda x, other, Q, K, V: attend(x @ Q, other @ K, other @ V, hidden=True),
                why="Position 3 of x and position 3 of `other` are in different texts: neither is the other's future.",
            ),
            Wrong(
                "softmax over the queries",
                "The softmax runs over the queries (dim=-2 or 1); the weights of one query sum to 1 over the S keys.",
                lambda x, other, Q, K, V: attend(x @ Q, other @ K, other @ V, dim=-2),
            ),
            Wrong(
                "keys and values of different texts",
                "Keys and values are not of the same text: weights (T, S) need S values, one for each key.",
                raises="Expected size",
                why="A key is what a value is filed under, so both are made from the same tokens.",
            ),
            Wrong(
                "masked as (T, T)",
                "The scores are (T, S), not (T, T), and nothing has to be hidden in them.",
                raises="at non-singleton dimension 2",
            ),
            Wrong(
                "k.T of three axes",
                "k.T turns the order of all three axes round, the batch too; k.mT swaps the last two.",
                raises="at non-singleton dimension 0",
            ),
        ],
    ),
]

picture = cat.of_result(
    "cross_attention",
    '"it slept" reads "The cat sat on the mat" through your code: slept finds who:',
    torch.cat([torch.tensor([[0.0, 0.6, 0.0, 0.0, 0.3], [0.0, 0.8, 1.2, 0.0, 0.0]]), torch.zeros(2, 6)], dim=1),
    torch.cat([cat.VECTORS, cat.EYE], dim=1),
    *(torch.cat([one[0], torch.zeros(6, 6)]) for one in (cat.QUERIES, cat.KEYS)),
    torch.cat([torch.zeros(5, 6), cat.EYE]),
    rows=["it", "slept"],
)
