"""Half precision: the −1e9 that does not fit.

Run this file with python:

    RuntimeError: value cannot be converted to type c10::Half without overflow

float16, in which many models run, has 16 bits for a number; the lowest is
−65504. −1e9 was meant as "lower than every score", and does not exist
there; −10000 exists, but a score can be lower. What do these print?

    torch.finfo(torch.float16).min      torch.finfo(torch.bfloat16).min
    torch.tensor(-torch.inf, dtype=torch.float16).exp()

Mend causal_weights so that it works in every precision.
"""

import torch


def causal_weights(scores):  # (T, T), in float16, bfloat16 or float32; so are the weights
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(future, -1e9)
    return scores.softmax(dim=-1)


if __name__ == "__main__":
    print(causal_weights(torch.zeros(3, 3, dtype=torch.float16)))
