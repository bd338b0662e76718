"""Layer norm: every vector brought to one size, from nothing.

A residual stream is a sum that grows with each block. Before a layer reads
it, each token's vector is brought to mean 0 and variance 1, and then given a
learned scale and shift, one number of each for every coordinate:

    x                  1    2    3    6       mean 3, variance 14 / 4 = 3.5
    x − mean          −2   −1    0    3
    / √(var + 1e-5)   −1.07 −.53 0    1.60    × scale, + shift

The variance is the mean of the squares, 14 / 4 and not 14 / 3. 1e-5 is added
so that a vector of equal numbers gives 0, not 0 / 0. Write it without
F.layer_norm and nn.LayerNorm, for x (B, T, E), scale (E,) and shift (E,).
"""

import torch


def layer_norm(x, scale, shift):
    mean = ...  # (B, T, 1)
    variance = ...  # (B, T, 1)
    return ...  # (B, T, E)


if __name__ == "__main__":
    x = torch.tensor([[[1.0, 2.0, 3.0, 6.0]]])
    print(layer_norm(x, torch.ones(4), torch.zeros(4)))
