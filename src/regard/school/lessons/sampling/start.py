"""Sampling: from scores to a token.

The logits 2, 1, 0, −1 are the probabilities .644 .237 .087 .032. Write four
ways to go on; the last three return the probabilities to draw from, (V,):

    greedy               token 0, always the best one
    temperature t = 0.5  .865 .117 .016 .002    divides the logits: bolder
    temperature t = 2    .455 .276 .167 .102    more even
    top_k       k = 2    .731 .269   0    0     the 2 best share all
    top_p       p = 0.8  .731 .269   0    0     .644 is not yet 0.8, but
                                                .644 + .237 is: so 2 tokens

Top-p keeps as few of the best tokens as reach p together, at least one. What
is kept sums to 1 again, and every token stays at its own place.
"""

import torch


def greedy(logits):
    return ...  # one id


def temperature(logits, t):
    return ...


def top_k(logits, k):
    return ...


def top_p(logits, p):
    probabilities = logits.softmax(-1)
    best_first, ids = probabilities.sort(descending=True)
    return ...


if __name__ == "__main__":
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    print(top_k(logits, 2), top_p(logits, 0.8))
