"""The whole layer in ten steps."""

from regard.school.exercises import Layer
from regard.mistakes.formula import hide
from regard.mistakes.mistake import Mistake


def divided_weights(scaled, visible, case):
    root = case.head_dim**0.5
    return hide(scaled * root, visible, case) / root


scaled_too_late = Mistake(
    "scaled after the softmax",
    "hide",
    divided_weights,
    "weights",
    "The weights are divided by √head_dim, not the scores: each row sums to 1/√{head_dim} instead of 1.",
    "The scale keeps the scores small, so that the softmax does not pick one key. Afterwards it is too late.",
    "weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)",
    rare=True,
)

parts = [Layer("MultiHeadAttention", causal=True, mistakes=[scaled_too_late])]
