"""Sampling: from scores to a token."""

import torch


def greedy(logits):
    return logits.argmax()


def temperature(logits, t):
    return (logits / t).softmax(-1)


def top_k(logits, k):
    kept = torch.full_like(logits, -torch.inf)
    best = logits.topk(k)
    kept[best.indices] = best.values
    return kept.softmax(-1)


def top_p(logits, p):
    probabilities = logits.softmax(-1)
    best_first, ids = probabilities.sort(descending=True)
    before = best_first.cumsum(-1) - best_first
    kept = torch.zeros_like(probabilities)
    kept[ids] = best_first * (before < p)
    return kept / kept.sum()


if __name__ == "__main__":
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    print(top_k(logits, 2), top_p(logits, 0.8))
