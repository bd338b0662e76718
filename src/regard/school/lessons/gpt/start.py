"""GPT: from token ids to scores for the next token.

    ids ─ embed ─ block ─ block ─ … ─ final norm ─ @ token_table.T ─ logits
    (B, T)        (B, T, E)                                          (B, T, V)

You have all the parts. The last product compares each token's vector with
every row of the token table; the largest dot product is the highest score.
Example with V = 3: x = [2, 1] and rows [1, 0], [0, 1], [1, 1] give the
logits 2, 1, 3, so token 2 comes next. That the table is used at both ends
is called weight tying. Logits are raw scores: no softmax here.

Write `gpt`, with w["blocks"] a list of weights, one entry for each block,
and w["final_norm"]. Then `next_token`: after each text, the id with the
best score.
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


def block(x, w):
    x = x + attention(norm(x, w["norm_1"]), w)
    return x + F.gelu(norm(x, w["norm_2"]) @ w["up"]) @ w["down"]


def embed(ids, w):
    return w["token_table"][ids] + w["position_table"][: ids.shape[1]]


def gpt(ids, w):
    x = embed(ids, w)
    ...  # (B, T, E) → logits (B, T, V)


def next_token(ids, w):
    ...  # (B, T) → (B,)
