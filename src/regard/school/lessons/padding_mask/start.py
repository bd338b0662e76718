"""Hide the padding of a batch.

Texts in a batch have different lengths; short ones are filled up with
padding at the end. For lengths 3 and 1, filled up to S = 3 tokens:

    the  cat  sat       True   True   True
    stop pad  pad       True   False  False      True = may attend

1. padding_mask makes this (B, S) tensor; one comparison does it, no loop.
2. attend: no query of any head may look at padding. The scores are
   (B, H, T, S), and axes are matched from the right, so (B, S) would be
   taken for (T, S): give the mask axes of size 1 where it needs them.
Without the mask, a text's answer would depend on its neighbours' lengths.
"""

import torch


def padding_mask(lengths, S):  # lengths is (B,); True = may attend
    positions = torch.arange(S)  # 0, 1, … S - 1
    return ...  # (B, S)


def attend(q, k, v, lengths):
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, T, S)
    may_attend = padding_mask(lengths, k.shape[-2])  # (B, S)
    may_attend = ...
    scores = scores.masked_fill(~may_attend, -torch.inf)
    return scores.softmax(dim=-1) @ v
