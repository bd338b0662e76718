"""Several heads: split vectors."""

import torch

from regard.school.exercises import Function, Wrong, cat

B, T, H, D = 2, 5, 3, 4


def arguments(random):
    first = int(torch.randint(10, (1,), generator=random))
    return first + torch.arange(B * T * H * D, dtype=torch.float32).view(B, T, H * D), H


def right(x, num_heads):
    return x.view(B, T, H, D).transpose(1, 2)


parts = [
    Function(
        "split_heads",
        arguments,
        right=right,
        wrong=[
            Wrong(
                "split without transpose",
                "The shape is right, the numbers are not: a head has parts of different words, mixed up.",
                lambda x, num_heads: x.view(B, H, T, D),
                why="view never moves numbers, it only groups them differently. Split the last axis by view; "
                "then swap the axes by transpose.",
            ),
            Wrong(
                "not transposed",
                "The result is (B, T, num_heads, head_dim); swap words and heads.",
                lambda x, num_heads: x.view(B, T, H, D),
                why="`@` multiplies the last two axes. They must be words and numbers, (T, head_dim).",
            ),
            Wrong(
                "every other number",
                "Head 0 has the numbers 0, 3, 6, 9 of a vector: each head takes every third number.",
                lambda x, num_heads: x.view(B, T, D, H).permute(0, 3, 1, 2),
                why="A head is a block of neighbouring numbers, 0, 1, 2, 3: the axis of heads comes first in view.",
            ),
            Wrong(
                "wrong axes swapped",
                "Heads and numbers are swapped: (B, T, head_dim, num_heads). Swap words and heads, axes 1 and 2.",
                lambda x, num_heads: x.view(B, T, H, D).transpose(2, 3),
            ),
            Wrong(
                "words and numbers swapped",
                "The result is (B, num_heads, head_dim, T); words come before numbers.",
                lambda x, num_heads: x.view(B, T, H, D).permute(0, 2, 3, 1),
            ),
            Wrong(
                "transposed before the split",
                "The axes are swapped before the last one is split, so words and numbers are mixed up.",
                lambda x, num_heads: x.transpose(1, 2).reshape(B, H, T, D),
                why="Axis 1 and 2 of x are words and numbers. There is an axis of heads only after view.",
            ),
            Wrong(
                "view after transpose",
                "view fails on a tensor that was transposed. Split the last axis first, then swap.",
                raises="view size is not compatible",
            ),
            Wrong(
                "head_dim is a float",
                "`/` gives a float, 4.0, and a shape needs whole numbers: use `//`.",
                raises="must be tuple of ints",
            ),
            Wrong(
                "head_dim is num_heads",
                "The sizes do not match: 2 · 5 · 3 · 3 is not the size of x. head_dim is E divided by num_heads.",
                raises="shape '[2, 5, 3, 3]' is invalid",
                why="view keeps all numbers: the product of the new sizes is the product of the old ones.",
            ),
            Wrong(
                "sizes do not multiply",
                "The sizes given to view do not multiply to the 2 · 5 · 12 numbers of x. head_dim is E // num_heads.",
                raises="is invalid for input of size",
                why="view keeps all numbers: the product of the new sizes is the product of the old ones.",
            ),
            Wrong(
                "heads before the texts",
                "The numbers are cut as (num_heads, B, T, head_dim); the heads are cut from the last axis.",
                lambda x, num_heads: x.reshape(num_heads, x.shape[0], x.shape[1], -1).transpose(0, 1),
            ),
        ],
    )
]

# Queries of both heads side by side, cut apart; each half meets the keys of its own head.
picture = cat.Picture(
    "split_heads",
    [(torch.cat([cat.queries(0), cat.queries(1)], dim=1)[None], 2)],
    lambda results: (results[0][0] @ torch.stack([cat.keys(0), cat.keys(1)]).mT / 6**0.5).softmax(-1),
    "Cut apart by you, the two halves of a query look at two places at once:",
    cat.WORDS,
)
