"""A training step: four lines that every model is trained by.

The loss is a number; its gradient says for each weight in which direction
the loss grows. The optimizer takes a small step the other way. For one
weight w and the loss (w − 3)², at w = 1 and a learning rate of 0.1:

    gradient  2 · (1 − 3) = −4        step  1 − 0.1 · (−4) = 1.4

PyTorch adds each new gradient to what is in weight.grad already, so the old
ones must be cleared, once for every step. The order of the four lines
matters: two of them undo each other if they are exchanged.

Write `training_step`: the model reads ids without their last column, and
predicts ids without their first; then the four lines. Return the loss as a
Python number. `train` calls it; both kinds of weights are in the model.
"""

import torch
from torch import nn


def cross_entropy(logits, targets):
    """That of the exercise before."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(model, optimizer, ids):
    logits = ...  # of ids (B, T + 1), all but the last column
    ...
    return ...  # a number


def train(model, texts, rate):
    """One step for each batch of texts; the losses. (given)"""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    return [training_step(model, optimizer, ids) for ids in texts]


if __name__ == "__main__":
    ids = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]])
    model = nn.Sequential(nn.Embedding(3, 5), nn.Linear(5, 3))
    print(train(model, 20 * [ids], rate=0.5))
