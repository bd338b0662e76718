"""Rotary positions: turn queries and keys by an angle.

Take two numbers of a vector as a point (a, b) in the plane, and turn it:

    a' = a·cos − b·sin        (1, 0) at position 1 by angle 1: (0.54, 0.84)
    b' = a·sin + b·cos        (1, 0) at position 2 by angle 2: (−0.42, 0.91)

A vector of D numbers has D/2 such pairs: number i goes with number i + D/2.
Pair i turns by position × 10000^(−2i/D). With D = 4 that is position × 1 for
pair 0 and position × 0.01 for pair 1: a fast hand and a slow hand of a clock.
Write `rotate` for x (H, T, D), whose token t stands at positions[t].
Then answer the question.
"""

import torch


def rotate(x, positions):
    D = x.shape[-1]
    speeds = ...  # (D/2,)
    angles = positions[:, None] * speeds  # (T, D/2)
    a, b = ...  # two halves, (H, T, D/2)
    return ...  # (H, T, D)


# A query at position 7 and a key at position 5, both rotated, have the score 1.3.
# The same two vectors stand at positions 107 and 105. What is their score?
#   "a"  smaller, because the angles are larger
#   "b"  1.3 again
#   "c"  that cannot be said without knowing the vectors
score = ...  # a letter in quotes, such as "a"


if __name__ == "__main__":
    print(rotate(torch.tensor([[[1.0, 0.0, 0.0, 0.0]] * 3]), torch.arange(3)))
