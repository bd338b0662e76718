"""Hide the future, in three ways."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Fault, Function, Judged, Wrong


def tokens(random):
    return (int(torch.randint(4, 8, (1,), generator=random)),)


def arguments(random):
    return (torch.randn(5, 5, generator=random),)


def hidden(t, diagonal=1):
    T = t if isinstance(t, int) else len(t)
    return torch.ones(T, T, dtype=torch.bool).triu(diagonal)


def right(scores):
    return scores.masked_fill(hidden(scores), -torch.inf).softmax(-1)


def minus_infinity(scores):
    return scores.softmax(-1).masked_fill(hidden(scores), -torch.inf)


def zeroed(scores):
    return scores.softmax(-1).masked_fill(hidden(scores), 0.0)


NUMBERS = Wrong(
    "numbers instead of bool",
    "The mask holds numbers, 0 and 1; masked_fill and ~ need one that is bool.",
    raises="bool",
)


def judge_bool(mask, T):
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        return None
    kind = f"of {str(mask.dtype).removeprefix('torch.')}" if isinstance(mask, torch.Tensor) else "no tensor"
    return Fault(
        "numbers instead of bool",
        f"The triangle is right, but it is {kind}; a mask is a tensor of True and False. Add .bool().",
        why="masked_fill takes no numbers, and ~ does not turn 0 and 1 around.",
    )


not_renormalised = "Hidden weights are 0, but the rows no longer add up to 1"

parts = [
    Function(
        "future",
        tokens,
        right=hidden,
        wrong=[
            Wrong(
                "hidden from itself",
                "The diagonal is hidden too, so a word cannot look at itself, and the first can look at nothing.",
                lambda T: hidden(T, 0),
                why="triu keeps the diagonal by default; pass diagonal=1. A row that is hidden completely becomes nan.",
            ),
            Wrong(
                "one future word visible",
                "The next word is still visible: the mask starts one too far to the right.",
                lambda T: hidden(T, 2),
                why="That is the very word to be predicted.",
            ),
            Wrong(
                "past and future swapped",
                "The past is hidden, and the future is not.",
                lambda T: hidden(T).T,
                why="Row i is query i. Later keys are to the right of the diagonal: the upper triangle.",
            ),
            Wrong(
                "may look instead of hidden",
                "True is where a query may look; it must be True where the key is hidden.",
                lambda T: ~hidden(T),
                why="Both kinds of masks are in use: read which one a function wants.",
            ),
        ],
    ),
    Judged("future", tokens, judge_bool),
    Function(
        "by_filling",
        arguments,
        right=right,
        wrong=[
            NUMBERS,
            Wrong(
                "0 instead of −∞",
                "Hidden scores are 0, and a score of 0 still gets a weight: exp(0) is 1.",
                lambda scores: scores.masked_fill(hidden(scores), 0.0).softmax(-1),
                why="Only exp(−∞) is 0.",
            ),
            Wrong(
                "masked after the softmax",
                f"{not_renormalised}: the mask comes after the softmax. Fill the scores.",
                zeroed,
            ),
            Wrong(
                "+∞ instead of −∞",
                "Hidden scores are +∞, and the softmax of that is nan; it is −torch.inf.",
                lambda scores: scores.masked_fill(hidden(scores), torch.inf).softmax(-1),
            ),
            Wrong(
                "the rest hidden",
                "What a query may look at is filled with −∞, and the future is not.",
                lambda scores: scores.masked_fill(~hidden(scores), -torch.inf).softmax(-1),
                why="masked_fill(mask, value) writes the value where the mask is True.",
            ),
            Wrong(
                "nothing hidden",
                "Nothing is hidden: every query still sees every key.",
                lambda scores: scores.softmax(-1),
                why="masked_fill returns a new tensor, it does not change the old one.",
            ),
            Wrong(
                "hidden by −1",
                "Hidden scores are −1, and e^−1 is a share as any other; only −∞ gives exactly 0.",
                lambda scores: scores.masked_fill(hidden(len(scores)), -1.0).softmax(-1),
            ),
            Wrong(
                "not low enough",
                "Hidden scores are −10, and their shares are small, but not 0; −∞ gives exactly 0.",
                lambda scores: scores.masked_fill(hidden(len(scores)), -10.0).softmax(-1),
            ),
        ],
        picture="weights",
    ),
    Function(
        "by_adding",
        arguments,
        right=right,
        wrong=[
            NUMBERS,
            Wrong(
                "0 · −∞ is nan",
                "The result is nan everywhere: the mask was made by a product, and 0 · −∞ is nan.",
                lambda scores: torch.full_like(scores, torch.nan),
                why="Start from zeros and fill in −∞ where it is hidden.",
            ),
            Wrong(
                "1 subtracted",
                "Hidden scores are only 1 smaller, so they still get a weight; add −∞.",
                lambda scores: (scores - hidden(scores).float()).softmax(-1),
            ),
            Wrong(
                "1 added",
                "Hidden scores are even 1 larger: True counts as 1.",
                lambda scores: (scores + hidden(scores).float()).softmax(-1),
            ),
            Wrong("nothing hidden", "Nothing is hidden: the mask is 0 everywhere.", lambda scores: scores.softmax(-1)),
            Wrong(
                "the rest hidden",
                "What a query may look at is hidden, and the future is not.",
                lambda scores: scores.masked_fill(~hidden(scores), -torch.inf).softmax(-1),
            ),
            Wrong(
                "scores added twice",
                "The mask holds the scores as well, so they are added twice; it holds 0 and −∞ only.",
                lambda scores: (2 * scores).masked_fill(hidden(len(scores)), -torch.inf).softmax(-1),
            ),
        ],
    ),
    Function(
        "by_renormalising",
        arguments,
        right=right,
        wrong=[
            NUMBERS,
            Wrong("not divided", f"{not_renormalised}: divide each row by its sum.", zeroed),
            Wrong(
                "divided by the sums of other rows",
                "Each row is divided by the sums of all rows, one for each column.",
                lambda scores: zeroed(scores) / zeroed(scores).sum(-1),
                why="sum(dim=-1) has shape (T,), aligned with the columns; with keepdim=True it is (T, 1).",
            ),
            Wrong(
                "columns add up to 1",
                "The columns add up to 1, the rows do not: the sum goes over the queries.",
                lambda scores: zeroed(scores) / zeroed(scores).sum(0),
            ),
            Wrong(
                "divided by the sum of all",
                "Every weight is divided by the sum of the whole matrix; each row has its own sum.",
                lambda scores: zeroed(scores) / zeroed(scores).sum(),
            ),
            Wrong(
                "the future kept",
                "The future is kept, and what a query may look at is 0.",
                lambda scores: scores.softmax(-1).triu(1) / scores.softmax(-1).triu(1).sum(-1, keepdim=True),
                why="hidden is True where a weight must be 0; ~hidden is the rest.",
            ),
            Wrong(
                "−∞ among the weights",
                "Hidden weights are −∞, and so is the sum of their row; a hidden weight is 0.",
                lambda scores: minus_infinity(scores) / minus_infinity(scores).sum(-1, keepdim=True),
                why="−∞ belongs into scores, where exp makes it 0. The weights have gone through the softmax already.",
            ),
            Wrong(
                "−∞ among the weights, softmax again",
                "The weights go through a softmax once more. Set the hidden ones to 0, and divide each row by its sum.",
                lambda scores: minus_infinity(scores).softmax(-1),
                why="softmax takes scores. Of weights, which differ by less than 1, it makes nearly equal ones.",
            ),
            Wrong(
                "softmax again",
                "A second softmax makes weights out of zeros: exp(0) is 1. Divide by the sum.",
                lambda scores: zeroed(scores).softmax(-1),
            ),
            Wrong(
                "nothing hidden", "Nothing is hidden: the future still has weights.", lambda scores: scores.softmax(-1)
            ),
            Wrong(
                "hidden from itself",
                "Each word is hidden from itself, too; it may look at itself and at what was before.",
                lambda scores: scores.softmax(-1).tril(-1) / scores.softmax(-1).tril(-1).sum(-1, keepdim=True),
            ),
        ],
    ),
]

picture = cat.of_result("by_filling", "With your mask, no word looks ahead (· is 0):", cat.scores())
