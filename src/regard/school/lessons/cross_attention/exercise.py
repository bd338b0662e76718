"""Cross-attention: two texts."""

import torch

from regard.school.exercises import Function, Wrong, cat
from regard.school.exercises.attention_slips import WITH_MASK, attention_slips


def arguments(random):
    x, other = torch.randn(2, 5, 11, generator=random), torch.randn(2, 7, 11, generator=random)
    return x, other, *(torch.randn(11, 3, generator=random) * 0.5 for _ in range(3))


def attend(q, k, v, divisor=None):
    return (q @ k.mT / (divisor or q.shape[-1] ** 0.5)).softmax(-1) @ v


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
                "scale by √E",
                "The scores are divided by √E, the width of x; it is √D, the width of q and k.",
                lambda x, other, Q, K, V: attend(x @ Q, other @ K, other @ V, x.shape[-1] ** 0.5),
                why="A score is a sum of D products.",
            ),
            *attention_slips(lambda x, other, Q, K, V: (x @ Q, other @ K, other @ V), leave_out=WITH_MASK),
            Wrong(
                "keys and values exchanged",
                "The keys are made with W_value and the values with W_key.",
                lambda x, other, Q, K, V: attend(x @ Q, other @ V, other @ K),
            ),
            Wrong(
                "values of x added",
                "x @ W_value is added to the output; only the values of `other` are mixed.",
                lambda x, other, Q, K, V: x @ V + attend(x @ Q, other @ K, other @ V),
            ),
            Wrong(
                "both texts read",
                "Keys and values are of x and `other` together; they are of `other` alone.",
                lambda x, other, Q, K, V: attend(x @ Q, torch.cat([x, other], 1) @ K, torch.cat([x, other], 1) @ V),
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
