"""The KV cache: one token at a time, the same result.

A model that writes adds one token and attends again. The keys and values of
the tokens before have not changed, so it keeps them, and computes only the
new ones. Say 3 tokens are in the cache and 2 new ones come: T = 2 queries,
S = 5 keys. The new tokens are the last two, so the mask is not the usual
triangle:

    query 0 is token 3    1 1 1 1 0       it sees keys up to i + S − T
    query 1 is token 4    1 1 1 1 1

Write `visible`, which makes that mask (True = may see), and `step`, which
attends from the new tokens x (T, E) to all tokens, and returns the context
(T, D) and the grown cache, k and v (S, D). One head, to keep it short.
"""

import torch


def visible(T, S):
    return ...  # (T, S), bool


def step(x, W_query, W_key, W_value, past_k, past_v):
    q = x @ W_query  # (T, D): of the new tokens only
    k = ...  # (S, D): of all tokens
    v = ...
    scores = q @ k.T / q.shape[-1] ** 0.5  # (T, S)
    ...
    return context, k, v


if __name__ == "__main__":
    x, matrices, empty = torch.randn(6, 4), torch.randn(3, 4, 4), torch.zeros(0, 4)
    at_once = step(x, *matrices, empty, empty)[0]
    k, v, one_by_one = empty, empty, []
    for token in x.split(1):
        context, k, v = step(token, *matrices, k, v)
        one_by_one.append(context)
    print((torch.cat(one_by_one) - at_once).abs().max())
