"""The loss: how surprised the model is by what comes next."""

import torch


def inputs_and_targets(ids):
    return ids[:, :-1], ids[:, 1:]


def cross_entropy(logits, targets):
    scores = logits.gather(-1, targets[..., None])[..., 0]  # of the right tokens
    return (torch.logsumexp(logits, dim=-1) - scores).mean()


if __name__ == "__main__":
    print(cross_entropy(torch.tensor([[[2.0, 1.0, 0.0]]]), torch.tensor([[2]])))
