"""Softmax: scores to shares."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong


def small(random):
    return (torch.randn(5, generator=random) * 2,)


def large(random):
    """Two scores near 1000. First and last are smaller, so that a shift by them, or by the mean, is not enough."""
    near_1000 = 1000 + 2 * torch.rand(2, generator=random)
    between = torch.cat([near_1000, torch.tensor([440.0, 0.0, -300.0])])[torch.randperm(5, generator=random)]
    return (torch.cat([torch.tensor([250.0]), between, torch.tensor([100.0])]),)


def low(random):
    return (-900 - 4 * torch.rand(5, generator=random),)


def exp_shares(shifted):
    return shifted.exp() / shifted.exp().sum()


LARGEST = "Subtract the largest: then every shifted score is 0 or negative, and exp is at most 1."
without = dict.fromkeys(("softmax", "log_softmax", "Softmax", "softmin"), "Write it with exp and a sum, this once.")
parts = [
    Function(
        "softmax",
        small,
        right=lambda scores: scores.softmax(0),
        wrong=[
            Wrong(
                "not divided by the sum",
                "The exponentials of the shifted scores come back as they are: they do not add up to 1.",
                lambda scores: (scores - scores.max()).exp(),
                why="Weights must sum to 1: divide each exponential by the sum of all.",
            ),
            Wrong(
                "no exponential",
                "The scores are divided by their sum, without exp.",
                lambda scores: scores / scores.sum(),
                why="Scores may be negative, and their sum 0. exp makes each positive and keeps their order.",
            ),
            Wrong(
                "no exponential of the shifted scores",
                "The shifted scores are divided by their sum, without exp.",
                lambda scores: (scores - scores.max()) / (scores - scores.max()).sum(),
                why="The shifted scores are 0 or negative: the largest would get a share of 0.",
            ),
            Wrong(
                "sigmoid",
                "Each score goes through a sigmoid by itself; shares are made of all scores together.",
                lambda scores: scores.sigmoid(),
            ),
            Wrong(
                "powers of 10",
                "These are powers of 10; exp is e to the power of a score.",
                lambda scores: exp_shares((scores - scores.max()) * 2.302585),
            ),
            Wrong(
                "exp twice",
                "exp is taken twice, of the exponentials once more.",
                lambda scores: exp_shares((scores - scores.max()).exp()),
            ),
            Wrong(
                "divided by running sums",
                "Each exponential is divided by the sum up to itself (cumsum); it is the sum of all.",
                lambda scores: (scores - scores.max()).exp() / (scores - scores.max()).exp().cumsum(0),
            ),
            Wrong(
                "divided by the largest",
                "The exponentials are divided by the largest score, not by their sum.",
                lambda scores: (scores - scores.max()).exp() / scores.max(),
            ),
            Wrong(
                "divided instead of shifted",
                "The scores are divided by the largest before exp; it must be subtracted from them.",
                lambda scores: exp_shares(scores / scores.max()),
                why="Only differences of scores count: a shift keeps them, a division does not.",
            ),
            Wrong(
                "divided by the number of scores",
                "The exponentials are divided by how many there are; divided by their sum they add up to 1.",
                lambda scores: (scores - scores.max()).exp() / len(scores),
            ),
            Wrong(
                "exponential and sum do not match",
                "Above are the exponentials of the shifted scores, below the sum of those that were not shifted.",
                lambda scores: (scores - scores.max()).exp() / scores.exp().sum(),
                why="The shift cancels only if it is in both: exp(s−m) / Σ exp(s−m) = exp(s) / Σ exp(s).",
            ),
            Wrong(
                "divided by the sum of the shifted scores",
                "The exponentials are divided by the sum of the shifted scores; it is the sum of the exponentials.",
                lambda scores: (scores - scores.max()).exp() / (scores - scores.max()).sum(),
            ),
            Wrong(
                "max with indices",
                "scores.max(dim=0) returns two things, the largest score and its index; scores.max() only the first.",
                raises="torch.return_types.max",
            ),
            Wrong(
                "sign reversed",
                "The smallest score gets the largest share: the scores are subtracted from the maximum.",
                lambda scores: (-scores).softmax(0),
                why="It is scores minus maximum, not maximum minus scores.",
            ),
            Wrong(
                "not divided by the sum, not shifted",
                "The exponentials come back as they are: they do not add up to 1.",
                lambda scores: scores.exp(),
                why="Weights must sum to 1: divide each exponential by the sum of all.",
            ),
            Wrong(
                "power of 2",
                "The exponentials are powers of 2; exp takes powers of e, 2.718….",
                lambda scores: 2**scores / (2**scores).sum(),
            ),
            Wrong(
                "1 subtracted",
                "1 is subtracted from each exponential (or expm1 is used).",
                lambda scores: ((scores - scores.max()).exp() - 1) / ((scores - scores.max()).exp() - 1).sum(),
            ),
            Wrong(
                "divided by the length",
                "The exponentials are divided by the length of their vector, norm(); divided by their sum they "
                "add up to 1.",
                lambda scores: scores.exp() / scores.exp().norm(),
            ),
            Wrong(
                "shifted below, not above",
                "Above are the exponentials of the scores, below the sum of those that were shifted.",
                lambda scores: scores.exp() / (scores - scores.max()).exp().sum(),
                why="The shift cancels only if it is in both.",
            ),
            Wrong(
                "all for the largest",
                "The largest score gets all; every score gets a share.",
                lambda scores: (scores == scores.max()).float(),
            ),
        ],
    ),
    Function(
        "softmax",
        large,
        right=lambda scores: scores.softmax(0),
        wrong=[
            Wrong(
                "overflow",
                "For scores around 1000 there is nan in the result: exp(1000) is inf, and inf / inf is nan.",
                exp_shares,
                why="Smaller scores are right already. Subtract the largest first, and no exponential is above 1.",
            ),
            Wrong(
                "the smallest subtracted",
                "The smallest score is subtracted, so the others are still large: exp overflows, inf / inf is nan.",
                lambda scores: exp_shares(scores - scores.min()),
                why=LARGEST,
            ),
            Wrong(
                "the sum subtracted",
                "The sum of all scores is subtracted, which is far above the largest: every exp is 0, and 0 / 0 "
                "is nan.",
                lambda scores: exp_shares(scores - scores.sum()),
                why=LARGEST,
            ),
            Wrong(
                "the mean subtracted",
                "The mean is subtracted, and the largest score is still far above it: exp overflows, inf / inf is nan.",
                lambda scores: exp_shares(scores - scores.mean()),
                why=LARGEST,
            ),
            Wrong(
                "the last subtracted",
                "The last score is subtracted, and others may be far above it: exp overflows, inf / inf is nan.",
                lambda scores: exp_shares(scores - scores[-1]),
                why=LARGEST,
            ),
            Wrong(
                "the first subtracted",
                "The first score is subtracted, and others may be far above it: exp overflows, inf / inf is nan.",
                lambda scores: exp_shares(scores - scores[0]),
                why=LARGEST,
            ),
            Wrong(
                "cut off",
                "Scores above 80 are cut off at 80: those that differ get the same share.",
                lambda scores: exp_shares(scores.clamp(max=80)),
                why="Cutting off loses what differs above the limit. Subtracting the largest loses nothing.",
            ),
        ],
        tolerance=1e-3,  # numbers around 1000 have few digits after the point
    ),
    Function(
        "softmax",
        low,
        right=lambda scores: scores.softmax(0),
        wrong=[
            Wrong(
                "the largest without its sign subtracted",
                "All scores are far below 0, and the largest size is subtracted: every exp is 0, and 0 / 0 is nan.",
                lambda scores: exp_shares(scores - scores.abs().max()),
                why="Subtract the largest score as it is, -900 and not 900.",
            ),
        ],
        tolerance=1e-3,
    ),
]

picture = cat.of_result(
    "softmax",
    'Your first weights. "The cat sat on the mat": how much of each word "sat" takes, by your softmax:',
    cat.VECTORS @ cat.VECTORS[2],
    rows=["sat"],
)
