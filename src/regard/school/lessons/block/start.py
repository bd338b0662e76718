"""The transformer block, with norms and residuals.

    x ─┬─ norm_1 ─ attention ── + ─┬─ norm_2 ─ feed_forward ── + ── out
       └────────────────────────┘  └───────────────────────────┘

Both parts read a normed copy of x, and what they return is added to x itself
(a residual). So x is never replaced, only added to: if x = [1, 3], it is
normed to [−1, 1], and if attention makes [0.5, 0] of that, x is [1.5, 3].

The feed-forward works on each token alone: x @ w["up"] makes it four times as
wide, GELU bends it (gelu(1) = 0.84, gelu(−1) = −0.16), w["down"] brings it
back. Write both. w is a dictionary with all weights of a block; each norm has
its own: w["norm_1"], w["norm_2"].
"""

import torch
import torch.nn.functional as F

H = 2  # heads
QKV = ("W_query", "W_key", "W_value")


def norm(x, scale_and_shift):
    """Each vector gets mean 0 and variance 1, then a learned scale and shift."""
    scale, shift = scale_and_shift
    return F.layer_norm(x, x.shape[-1:], scale, shift)


def attention(x, w):
    """The layer that you wrote: causal, H heads, with output projection."""
    B, T, E = x.shape
    q, k, v = ((x @ w[name]).view(B, T, H, E // H).transpose(1, 2) for name in QKV)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / (E // H) ** 0.5).masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, E) @ w["out_proj"]


def feed_forward(x, w):
    ...  # (B, T, E) → (B, T, 4E) → (B, T, E)


def block(x, w):
    ...  # (B, T, E) → (B, T, E)
