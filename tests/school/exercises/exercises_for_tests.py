"""One exercise with a part of every kind, and answers to it."""

EXERCISE = '''"""Divide the scores by √head_dim."""

import torch

from regard.school.exercises import Fault, Function, Judged, Layer, Question, Wrong


def arguments(random):
    return torch.randn(2, 3, 5, generator=random), 7


def judge(result, least):
    return None if result > least else Fault("too small", f"{result} is not more than {least}.", "More is asked for.")


parts = [
    Function(
        "scale",
        arguments,
        right=lambda scores, head_dim: scores / head_dim**0.5,
        wrong=[
            Wrong(
                "missing root", "The scores are divided by {1}; it is √{1}.", lambda s, d: s / d, why="Variances add."
            ),
            Wrong("no scale", "The scores are not divided.", lambda s, d: s),
            Wrong("an integer root", "isqrt() takes whole numbers.", raises="cannot be interpreted as an integer"),
        ],
        picture="weights",
    ),
    Question("answer_1", right="b", because={"a": "Not a, because b."}),
    Judged("large", lambda random: (5,), judge),
    Layer("attention"),
]
'''
ANSWER = '''"""The answer."""
import math

answer_1 = "b"


def scale(scores, head_dim):
    return scores / head_dim**0.5


def large(least):
    return least + 1


def attention(q, k, v):
    return (q @ k.mT / k.shape[-1] ** 0.5).softmax(-1) @ v
'''
SCALED = "scores / head_dim**0.5"
