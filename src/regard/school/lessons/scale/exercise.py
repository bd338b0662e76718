"""Scaled dot-product attention."""

import torch

from regard.school.exercises import Function, Wrong, cat
from regard.school.exercises.attention_slips import WITH_MASK, attention_slips


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
            *attention_slips(lambda q, k, v: (q, k, v), leave_out=WITH_MASK),
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
