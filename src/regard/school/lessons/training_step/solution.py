"""A training step: four lines that every model is trained by."""

import torch
from torch import nn


def cross_entropy(logits, targets):
    """That of the exercise before."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(model, optimizer, ids):
    logits = model(ids[:, :-1])  # of ids (B, T + 1), all but the last column
    loss = cross_entropy(logits, ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()  # a number


def train(model, texts, rate):
    """One step for each batch of texts; the losses. (given)"""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    return [training_step(model, optimizer, ids) for ids in texts]


if __name__ == "__main__":
    ids = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]])
    model = nn.Sequential(nn.Embedding(3, 5), nn.Linear(5, 3))
    print(train(model, 20 * [ids], rate=0.5))
