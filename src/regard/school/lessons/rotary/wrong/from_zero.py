# named: counted from 0
"""Rotary positions: turn queries and keys by an angle."""

import torch


def rotate(x, positions):
    D = x.shape[-1]
    speeds = 10_000 ** (-torch.arange(0, D, 2) / D)  # (D/2,)
    angles = torch.arange(x.shape[1])[:, None] * speeds  # (T, D/2)
    a, b = x.chunk(2, dim=-1)  # two halves, (H, T, D/2)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)  # (H, T, D)


# A query at position 7 and a key at position 5, both rotated, have the score 1.3.
# The same two vectors stand at positions 107 and 105. What is their score?
#   "a"  smaller, because the angles are larger
#   "b"  1.3 again
#   "c"  that cannot be said without knowing the vectors
score = "b"


if __name__ == "__main__":
    print(rotate(torch.tensor([[[1.0, 0.0, 0.0, 0.0]] * 3]), torch.arange(3)))
