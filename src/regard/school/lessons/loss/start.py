"""The loss: how surprised the model is by what comes next.

The model gives a score to each of V tokens; softmax makes shares of them.
The loss of a token is −ln of the share that it got. With the scores 2, 1, 0
the shares are .665 .245 .090, and the loss of token 0 is 0.41, that of token
2 is 2.41. Guessing among V = 512 tokens costs ln 512 = 6.24. The loss of a
text is the mean over all tokens, of all texts of a batch.

e^1000 is inf. But ln softmax(scores)[t] = scores[t] − ln Σ e^scores, and the
logarithm of a sum of powers stays finite if the largest score is taken out:
ln Σ e^s = m + ln Σ e^(s − m). torch.logsumexp does that.

Write `cross_entropy` for logits (B, T, V) and targets (B, T), ids, without
F.cross_entropy; and `inputs_and_targets`: from ids (B, T + 1), what the
model reads and what it should say, (B, T) each.
"""

import torch


def inputs_and_targets(ids):
    return ...


def cross_entropy(logits, targets):
    return ...  # one number


if __name__ == "__main__":
    print(cross_entropy(torch.tensor([[[2.0, 1.0, 0.0]]]), torch.tensor([[2]])))
