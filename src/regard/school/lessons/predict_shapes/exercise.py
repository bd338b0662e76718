"""Predict the shape, five times."""

import torch

from regard.school.exercises import Function, Wrong


def arguments(random):
    """B, T, E, H: all different, as is head_dim."""
    primes = torch.tensor([2, 3, 5, 7, 11, 13])[torch.randperm(6, generator=random)].tolist()
    B, T, H, D = primes[:4]
    return B, T, H * D, H


parts = [
    Function(
        "project",
        arguments,
        right=lambda B, T, E, H: (B, T, E),
        wrong=[
            Wrong(
                "already split",
                "The heads are split in the next step; a projection changes the last axis only.",
                lambda B, T, E, H: (B, T, H, E // H),
            ),
            Wrong(
                "one head only",
                "E // H is the width of one head; W_query makes the queries of all heads at once, E numbers.",
                lambda B, T, E, H: (B, T, E // H),
            ),
            Wrong(
                "numbers of the example",
                "Those are the sizes of the example; return them as B, T, E and H give them.",
                lambda B, T, E, H: (4, 100, 768),
            ),
            Wrong(
                "weight, not output",
                "(E, E) is the shape of the weight; its product with x keeps B and T.",
                lambda B, T, E, H: (E, E),
            ),
        ],
    ),
    Function(
        "split",
        arguments,
        right=lambda B, T, E, H: (B, T, H, E // H),
        wrong=[
            Wrong(
                "already transposed",
                "view cannot move an axis: T stays where it is, and the last axis becomes two.",
                lambda B, T, E, H: (B, H, T, E // H),
            ),
            Wrong(
                "heads last",
                "The last axis is cut into H heads of E // H numbers: the heads come first.",
                lambda B, T, E, H: (B, T, E // H, H),
                why="A head is a run of numbers that stand together.",
            ),
            Wrong(
                "width not shared",
                "That is H times as many numbers as before; the heads share the width, E // H for each.",
                lambda B, T, E, H: (B, T, H, E),
                why="view keeps the number of elements: B · T · E.",
            ),
        ],
    ),
    Function(
        "transpose",
        arguments,
        right=lambda B, T, E, H: (B, H, T, E // H),
        wrong=[
            Wrong(
                "not transposed",
                "That is the shape before transpose(1, 2), which swaps axes 1 and 2, counted from 0.",
                lambda B, T, E, H: (B, T, H, E // H),
            ),
            Wrong(
                "axes 1 and 3",
                "Axes 1 and 3 are swapped here; transpose(1, 2) swaps the two in the middle.",
                lambda B, T, E, H: (B, E // H, H, T),
            ),
            Wrong(
                "heads before the batch",
                "The batch stays first; only T and H change places.",
                lambda B, T, E, H: (H, B, T, E // H),
            ),
        ],
    ),
    Function(
        "scores",
        arguments,
        right=lambda B, T, E, H: (B, H, T, T),
        wrong=[
            Wrong(
                "vectors, not numbers",
                "A score is one number for a query and a key: the E // H numbers of the vectors are summed up.",
                lambda B, T, E, H: (B, H, T, E // H),
            ),
            Wrong(
                "heads forgotten",
                "Every head has scores of its own.",
                lambda B, T, E, H: (B, T, T),
            ),
            Wrong(
                "numbers against numbers",
                "That is q.mT @ k: it compares numbers over all tokens, not tokens.",
                lambda B, T, E, H: (B, H, E // H, E // H),
                why="(T, D) @ (D, T) is (T, T): the inner axis goes.",
            ),
            Wrong(
                "heads against heads",
                "That is the product without the transpose: it compares the heads of one token.",
                lambda B, T, E, H: (B, T, H, H),
            ),
        ],
    ),
    Function(
        "merge",
        arguments,
        right=lambda B, T, E, H: (B, T, E),
        wrong=[
            Wrong(
                "not joined",
                "The heads are still apart; the last two axes become one of H · (E // H) numbers.",
                lambda B, T, E, H: (B, T, H, E // H),
            ),
            Wrong(
                "averaged",
                "E // H numbers are those of one head; joined side by side there are H times as many.",
                lambda B, T, E, H: (B, T, E // H),
            ),
            Wrong(
                "not transposed back",
                "That is the context as it leaves attention; it is transposed back, and joined.",
                lambda B, T, E, H: (B, H, T, E // H),
            ),
        ],
    ),
]
