"""The NaN row: nothing to see."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong


def arguments(random):
    may_attend = torch.rand(5, 7, generator=random) < 0.6
    may_attend[:, 0] = True
    may_attend[:, 1] = False
    may_attend[int(torch.randint(5, (), generator=random))] = False
    return torch.randn(5, 7, generator=random), may_attend


def right(scores, may_attend):
    return scores.masked_fill(~may_attend, -torch.inf).softmax(-1).masked_fill(~may_attend, 0.0)


def gradient(scores, may_attend):
    weights = right(scores, may_attend)
    return 2 * weights * (weights - (weights * weights).sum(-1, keepdim=True))


def lost(scores, may_attend):
    """The gradient, with NaN in the row that may look at nothing."""
    return gradient(scores, may_attend).masked_fill(~may_attend.any(-1, keepdim=True), torch.nan)


parts = [
    Function(
        "weights_of",
        arguments,
        right,
        wrong=[
            Wrong(
                "NaN",
                "The row that may look at nothing is still NaN.",
                lambda scores, may: scores.masked_fill(~may, -torch.inf).softmax(-1),
                why="NaN is not repaired by a product: NaN · 0 is NaN. It has to be replaced.",
            ),
            Wrong(
                "equal weights for hidden keys",
                "The row that may look at nothing looks at all hidden keys alike: 1/7 = 0.14 each.",
                lambda scores, may: scores.masked_fill(~may, -1e9).softmax(-1),
                why="With −1e9 everywhere all scores are equal. It is no NaN, but padding that is read in silence.",
            ),
            Wrong(
                "sees everything",
                "The row that may look at nothing gets the weights of no mask at all; its keys are hidden, so "
                "they get 0.",
                lambda scores, may: scores.masked_fill(~may & may.any(-1, keepdim=True), -torch.inf).softmax(-1),
            ),
            Wrong(
                "masked after the softmax",
                "Rows no longer sum to 1: the hidden keys are set to 0 after the softmax, which has given them a "
                "share.",
                lambda scores, may: scores.softmax(-1) * may,
                why="The scores must be −∞ before the softmax as well.",
            ),
            Wrong(
                "every row 0",
                "All weights are 0; only the row that may look at nothing is.",
                lambda scores, may: torch.zeros_like(scores),
            ),
            Wrong(
                "NaN to 1",
                "A row that may look at nothing is 1 everywhere; it is 0.",
                lambda scores, may_attend: scores.masked_fill(~may_attend, -torch.inf).softmax(-1).nan_to_num(1.0),
            ),
            Wrong(
                "the rest kept",
                "What may be seen is 0, and what is hidden remains: True means may attend.",
                lambda scores, may_attend: (
                    scores.masked_fill(~may_attend, -torch.inf).softmax(-1).masked_fill(may_attend, 0.0)
                ),
            ),
            Wrong(
                "softmax over the queries",
                "The softmax goes over the queries, dim=0; it goes over the keys.",
                lambda scores, may_attend: (
                    scores.masked_fill(~may_attend, -torch.inf).softmax(0).masked_fill(~may_attend, 0.0)
                ),
            ),
            Wrong(
                "hidden scores set to 0",
                "Hidden scores are 0, and e⁰ = 1 is a share as any other.",
                lambda scores, may_attend: (
                    scores.masked_fill(~may_attend, 0.0).softmax(-1).masked_fill(~may_attend, 0.0)
                ),
            ),
            Wrong(
                "nothing hidden",
                "Nothing is hidden: the scores are not masked.",
                lambda scores, may_attend: scores.softmax(-1),
            ),
            Wrong(
                "a large number added below",
                "1 is added to the sum of each row, so that no row sums to 1; add nothing, or replace what is NaN.",
                lambda scores, may_attend: (
                    scores.exp() * may_attend / ((scores.exp() * may_attend).sum(-1, keepdim=True) + 1)
                ),
            ),
        ],
        picture="weights",
    ),
    Function(
        "gradient",
        arguments,
        gradient,
        wrong=[
            Wrong(
                "NaN in the gradient",
                "The weights are right, but the gradient of the row that may look at nothing is NaN.",
                lost,
                why="The NaN is replaced on the way forward only. Where the mask is added, it flows back into "
                "the scores; "
                "masked_fill stops it, because hidden scores are not used.",
            ),
            Wrong(
                "changed in place",
                "The weights are overwritten after the softmax, whose gradient still needs them; make a new tensor.",
                raises="modified by an inplace operation",
                why="weights[mask] = 0 and masked_fill_ write into the tensor; masked_fill and torch.where "
                "return a new one.",
            ),
            Wrong(
                "no gradient",
                "The gradient is 0 everywhere: the weights were cut off from the scores.",
                lambda scores, may: torch.zeros_like(scores),
            ),
        ],
    ),
]

picture = cat.of_result(
    "weights_of",
    "Each word sees those before it only, and the first sees nothing: no NaN:",
    cat.scores(),
    torch.ones(6, 6).tril(-1) > 0,
)
