"""The dot product."""

import torch

from regard.school.exercises import Function, Wrong


def arguments(random):
    a, b = torch.randint(-999, 1000, (2, 5), generator=random) / 100
    return a, b


parts = [
    Function(
        "dot",
        arguments,
        right=lambda a, b: (a * b).sum(),
        wrong=[
            Wrong(
                "products not added up",
                "The result is one product for each position; the dot product is one number, their sum.",
                lambda a, b: a * b,
            ),
            Wrong(
                "only the last product",
                "Only the last product is left: each iteration of the loop replaces the total.",
                lambda a, b: a[-1] * b[-1],
                why="`total = …` forgets what was there before; `total += …` adds to it.",
            ),
            Wrong(
                "only the first product",
                "Only the first product is there: the function returns in the first iteration of the loop.",
                lambda a, b: a[0] * b[0],
                why="A `return` that is indented into the loop ends it at once.",
            ),
            Wrong(
                "sums multiplied",
                "Both vectors are added up first, then the two sums are multiplied.",
                lambda a, b: a.sum() * b.sum(),
                why="That also multiplies first numbers by second ones. Multiply numbers in the same position only.",
            ),
            Wrong(
                "added instead of multiplied",
                "The numbers of each position are added, not multiplied.",
                lambda a, b: (a + b).sum(),
            ),
            Wrong(
                "mean of the products",
                "The products are averaged; the dot product is their sum.",
                lambda a, b: (a * b).mean(),
            ),
            Wrong(
                "total is still 0",
                "The result is 0: nothing was added to total.",
                lambda a, b: 0.0,
                why="`total + …` computes a sum and forgets it, and 0 times anything is 0; `total += …` keeps it.",
            ),
            Wrong(
                "one number times a whole vector",
                "Each number of a is multiplied by all of b; multiply a[i] by b[i] only.",
                lambda a, b: a.sum() * b,
            ),
            Wrong(
                "whole vectors in the loop",
                "Each iteration adds a * b, all products at once; iteration i should add a[i] * b[i].",
                lambda a, b: len(a) * a * b,
            ),
            Wrong(
                "every product",
                "This is a table of every number of a times every number of b (the outer product).",
                lambda a, b: torch.outer(a, b),
                why="The dot product needs the products of equal positions only: the diagonal of that table.",
            ),
            Wrong(
                "cosine",
                "This is the cosine of the angle: the dot product divided by both lengths.",
                lambda a, b: torch.cosine_similarity(a, b, dim=0),
                why="Attention does not divide by the lengths: a longer vector may count for more.",
            ),
            Wrong(
                "b is not used",
                "The result is a · a: b is not used.",
                lambda a, b: (a * a).sum(),
            ),
            Wrong(
                "a is not used",
                "The result is b · b: a is not used.",
                lambda a, b: (b * b).sum(),
            ),
            Wrong(
                "only the largest product",
                "Only the largest product is returned; they are added up.",
                lambda a, b: (a * b).max(),
            ),
            Wrong(
                "neighbours",
                "a[i] meets b[i + 1]; equal positions belong together.",
                lambda a, b: (a[:-1] * b[1:]).sum(),
            ),
            Wrong(
                "distance",
                "These are squared differences, the square of the distance; multiply, do not subtract.",
                lambda a, b: (a - b).square().sum(),
            ),
            Wrong(
                "cut to whole numbers",
                "Each product is cut to a whole number: int() drops what is behind the point.",
                lambda a, b: (a * b).trunc().sum(),
            ),
            Wrong(
                "rounded",
                "The result is rounded; return the number as it is.",
                lambda a, b: (a * b).sum().mul(100).round() / 100,
            ),
            Wrong(
                "signs lost",
                "The products are added without their signs; a negative product makes the sum smaller.",
                lambda a, b: (a * b).abs().sum(),
            ),
            Wrong(
                "last product missing",
                "The last product is missing: range(len(a)) ends before len(a) by itself.",
                lambda a, b: (a * b)[:-1].sum(),
            ),
            Wrong(
                "first product missing",
                "The first product is missing; positions are counted from 0.",
                lambda a, b: (a * b)[1:].sum(),
            ),
            Wrong(
                "multiplied instead of added",
                "The products are multiplied with each other; they are added up.",
                lambda a, b: (a * b).prod(),
            ),
            Wrong(
                "b backwards",
                "b is read backwards: a[i] meets b[-i]; equal positions belong together.",
                lambda a, b: (a * b[[-i for i in range(len(b))]]).sum(),
            ),
        ],
    )
]
