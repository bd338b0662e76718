"""Broken: x is not d_in wide."""

import torch

from regard.school.exercises import Function, Wrong


def arguments(random):
    d_in, d_out = torch.tensor([3, 5, 7, 11, 13])[torch.randperm(5, generator=random)][:2].tolist()
    return torch.randn(2, 4, d_in, generator=random), d_out


parts = [
    Function(
        "run",
        arguments,
        right=lambda x, d_out: ([*x.shape[:2], d_out], []),
        wrong=[
            Wrong(
                "width is not d_in",
                "A layer still gets tokens of another width than the d_in that it was built with.",
                raises="cannot be multiplied",
                why="d_in of a layer is the width of what it gets: for the second layer, that is what the first one returns.",
            ),
            Wrong(
                "first layer skipped",
                "It runs, but the first layer is not used any more.",
                lambda x, d_out: ([*x.shape[:2], d_out], ["first"]),
                why="The error is gone because nothing goes through both layers; the task is to make them fit.",
            ),
            Wrong(
                "second layer skipped",
                "It runs, but the second layer is not used any more.",
                lambda x, d_out: ([*x.shape[:2], d_out], ["second"]),
            ),
            Wrong(
                "width stays d_in",
                "The layers fit together, but the output has the width d_in; it is d_out = {1}.",
                lambda x, d_out: (list(x.shape), []),
            ),
        ],
    ),
]
