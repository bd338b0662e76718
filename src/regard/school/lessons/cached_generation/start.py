"""Writing with a cache: nothing is computed twice.

A model that writes 20 tokens after a prompt of 30 reads 30 tokens, then 31,
then 32 … : 810 in all, if it begins anew for each. With a cache, it reads
the prompt once, and then one token at a time: 30 + 19 = 49. Your products
are counted: every multiplication of two numbers in `@` and the like.

`forward` is a small GPT: one layer, one head. It reads new ids (T,) that
come after `len(past_k)` tokens, and returns the hidden vectors (T, E) and
the cache, past and new, k and v. `score` makes logits of hidden vectors.

Write `generate`: the prompt goes in once, with an empty cache; of its hidden
vectors only the last is scored. Then each new token goes in alone. Return
the `count` new ids, a list of numbers, each the one with the best score.
The last token that is written need not be read.
"""

import torch


def forward(ids, w, past_k, past_v):
    positions = torch.arange(len(past_k), len(past_k) + len(ids))
    x = w["token_table"][ids] + w["position_table"][positions]
    q = x @ w["W_query"]
    k = torch.cat([past_k, x @ w["W_key"]])
    v = torch.cat([past_v, x @ w["W_value"]])
    visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    scores = (q @ k.T / q.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf)
    return x + scores.softmax(-1) @ v @ w["out_proj"], k, v


def score(hidden, w):
    return hidden @ w["token_table"].T  # (…, E) → (…, V)


def generate(prompt, count, w):
    D = w["W_key"].shape[1]
    k, v = torch.zeros(0, D), torch.zeros(0, D)
    ...
    return ...  # a list of count ids
