"""fp16: −1e9 does not fit."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong


def arguments(dtype, low):
    """Scores of which one row is very low, as they are where nothing was scaled."""

    def make(random):
        scores = torch.randn(5, 5, generator=random)
        scores[int(torch.randint(1, 4, (), generator=random))] += low
        return (scores.to(dtype),)

    return make


def filled(scores, value):
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), value).softmax(-1)


infinite = Wrong(
    "wrong sign of infinity",
    "Hidden scores become +∞, which gives NaN; exp(−∞) is 0, exp(+∞) is ∞.",
    lambda scores: filled(scores, torch.inf),
)
overflow = Wrong(
    "does not fit",
    "The number for hidden scores does not fit float16, whose largest is 65504.",
    raises="without overflow",
    why="Take a value that every floating-point type has.",
)
seen = Wrong(
    "future seen",
    "Nothing is hidden.",
    lambda scores: scores.softmax(-1),
)
zero = Wrong(
    "hidden scores set to 0",
    "Hidden scores become 0; exp(0) = 1, so the future is still seen.",
    lambda scores: filled(scores, 0.0),
)
after = Wrong(
    "masked after the softmax",
    "Rows no longer sum to 1: the future is set to 0 after the softmax, which has given it a share.",
    lambda scores: scores.softmax(-1).tril(),
)

parts = [
    Function(
        "causal_weights",
        arguments(torch.float16, -30000),
        lambda scores: filled(scores, -torch.inf),
        wrong=[
            overflow,
            infinite,
            seen,
            zero,
            after,
            Wrong(
                "−10000 is not low enough",
                "In a row of scores near −30000, the hidden ones at −10000 are the highest: only the future is seen.",
                lambda scores: filled(scores, -1e4),
                why="A number that should be lower than any score has to be lower than any number.",
            ),
        ],
        tolerance=2e-3,
        picture="weights",
        same_dtype=True,
    ),
    Function(
        "causal_weights",
        arguments(torch.float32, -1e6),
        lambda scores: filled(scores, -torch.inf),
        wrong=[
            overflow,
            seen,
            Wrong(
                "not low enough in float32",
                "It works in float16. In float32 a score can be lower than −65504, and then only the future is seen.",
                lambda scores: filled(scores, -65504.0),
                why="torch.finfo(scores.dtype).min is the limit of the type that the scores really have.",
            ),
        ],
        tolerance=2e-3,
        same_dtype=True,
    ),
    Function(
        "causal_weights",
        arguments(torch.bfloat16, 0),
        lambda scores: filled(scores, -torch.inf),
        wrong=[seen, zero, after],
        tolerance=2e-2,
        same_dtype=True,
    ),
]

picture = cat.of_result("causal_weights", "Your weights, computed in float16:", cat.scores().half())
