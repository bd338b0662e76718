"""Where the heads of a softmax are."""

import torch
from torch import nn

from heads.models import calls, watched

x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """A model that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def test_heads_folded_into_the_batch_are_unfolded():
    def fold(x, sequence_first=False):
        q = x.transpose(0, 1) if sequence_first else x
        q = q.unflatten(-1, (3, 4)).transpose(1, 2).flatten(0, 1)
        return (q @ q.mT).softmax(-1) @ q

    q = x.unflatten(-1, (3, 4)).transpose(1, 2)
    expected = (q @ q.mT).softmax(-1)
    assert torch.equal(calls(watched(Model(fold), x)[1])[0].attention.weights, expected)
    turned = Model(lambda x: fold(x, True))
    assert torch.equal(calls(watched(turned, x.transpose(0, 1))[1])[0].attention.weights, expected)


def test_heads_are_known_from_a_view_by_the_model():
    def view(w, v):
        weights = w.softmax(-1)
        weights.view(5, 2, 7, 7)
        return weights @ v

    w, v = torch.randn(10, 7, 7), torch.randn(10, 7, 3)
    assert calls(watched(Model(view), w, v)[1])[0].attention.weights.shape == (5, 2, 7, 7)
