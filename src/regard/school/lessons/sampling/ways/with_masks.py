"""Sampling: from scores to a token."""

import torch


def greedy(logits):
    return logits.argmax()


def temperature(logits, t):
    return (logits / t).softmax(-1)


def top_k(logits, k):
    worst = logits.topk(k).values[-1]
    return logits.masked_fill(logits < worst, -torch.inf).softmax(-1)


def top_p(logits, p):
    probabilities = logits.softmax(-1)
    best_first, ids = probabilities.sort(descending=True)
    dropped = ids[best_first.cumsum(-1) - best_first >= p]
    return logits.index_fill(0, dropped, -torch.inf).softmax(-1)


if __name__ == "__main__":
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    print(top_k(logits, 2), top_p(logits, 0.8))
