"""All words at once."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong


def arguments(random):
    return (torch.randn(6, 3, generator=random),)


def weights_of(x):
    return (x @ x.T).softmax(-1)


parts = [
    Function(
        "attention_weights",
        arguments,
        right=weights_of,
        wrong=[
            Wrong(
                "softmax over the columns",
                "The columns add up to 1, the rows do not: the softmax goes over the queries.",
                lambda x: (x @ x.T).softmax(0),
                why="Row i holds the shares that query i gives to the words. dim=-1 is the axis of the words.",
            ),
            Wrong(
                "softmax over all numbers",
                "All 36 numbers together add up to 1; each row must.",
                lambda x: (x @ x.T).flatten().softmax(0).view(len(x), len(x)),
            ),
            Wrong("no softmax", "These are the scores: softmax is missing.", lambda x: x @ x.T),
            Wrong(
                "columns compared",
                "x.T @ x compares the 3 columns of x with each other; the 6 rows are the words.",
                lambda x: (x.T @ x).softmax(-1),
            ),
            Wrong(
                "not transposed",
                "The shapes of x @ x do not match, (6, 3) and (6, 3): the second matrix must have words as columns.",
                raises="shapes cannot be multiplied (6x3 and 6x3)",
                why="A matrix product takes rows of the first and columns of the second.",
            ),
            Wrong(
                "sums compared",
                "Two rows are added, not multiplied, before they are summed up; a score is a dot product.",
                lambda x: (x[:, None] + x).sum(-1).softmax(-1),
            ),
            Wrong(
                "number by number",
                "`*` multiplies number by number; `@` is the matrix product.",
                lambda x: (x * x).softmax(-1),
            ),
            Wrong(
                "words hidden from themselves",
                "Every word gets weight 0 on itself; here it may look at itself too.",
                lambda x: (x @ x.T).fill_diagonal_(-torch.inf).softmax(-1),
            ),
            Wrong(
                "divided by the sum of scores",
                "The scores are divided by their sum, without exp; use softmax.",
                lambda x: (x @ x.T) / (x @ x.T).sum(-1, keepdim=True),
            ),
            Wrong(
                "scaled too early",
                "The scores are divided by √d; here they are plain dot products. The scale has an exercise of its own.",
                lambda x: (x @ x.T / x.shape[1] ** 0.5).softmax(-1),
            ),
            Wrong(
                "sigmoid",
                "Each score has a sigmoid of its own; shares of a row add up to 1.",
                lambda x: (x @ x.T).sigmoid(),
            ),
            Wrong(
                "later words hidden",
                "Later words are hidden; here every word sees all.",
                lambda x: (x @ x.T).masked_fill(torch.ones(len(x), len(x)).triu(1) > 0, -torch.inf).softmax(-1),
            ),
            Wrong(
                "all for the largest",
                "Each row gives all to its largest score; every score gets a share.",
                lambda x: (x @ x.T == (x @ x.T).amax(-1, keepdim=True)).float(),
            ),
            Wrong(
                "not divided by the sum",
                "The exponentials are not divided by the sum of their row.",
                lambda x: (x @ x.T).exp(),
            ),
        ],
        picture="weights",
    ),
    Function(
        "attention",
        arguments,
        right=lambda x: weights_of(x) @ x,
        wrong=[
            Wrong(
                "weights transposed",
                "Row i is mixed by column i of the weights; the shares of query i are row i.",
                lambda x: weights_of(x).T @ x,
                why="The column tells how much the others take from word i. It does not add up to 1.",
            ),
            Wrong(
                "x before the weights",
                "The shapes of x @ weights do not match, (6, 3) and (6, 6): the weights come first.",
                raises="shapes cannot be multiplied (6x3 and 6x6)",
                why="Each row of the result mixes the rows of x, so x is the second matrix.",
            ),
            Wrong(
                "scores instead of weights",
                "The words are mixed by scores; use the weights.",
                lambda x: x @ x.T @ x,
            ),
            Wrong("weights returned", "These are the weights; the context has the shape of x.", weights_of),
        ],
    ),
]

picture = cat.of_result(
    "attention_weights", "All words at once: your weights, a row for each word that asks:", cat.VECTORS
)
