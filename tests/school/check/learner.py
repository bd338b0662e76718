"""One learner's layer, right as it stands, for tests that need any; and layers from the corpus of wrong ones."""

import torch
from torch import nn

from benchmarks.check.cases import right_layers, wrong_layers
from regard.school.check.check import check_subject
from regard.school.check.learner_code.loading import load_file
from regard.school.check.request import Request


class Learner(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(1).bool())

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (
            W(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
            for W in (self.W_query, self.W_key, self.W_value)
        )
        scores = q @ k.mT / self.head_dim**0.5
        scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return self.out_proj((weights @ v).transpose(1, 2).reshape(B, T, -1))


def wrong(name, layer):
    """The layer of the corpus with this mistake."""
    return next(case for case in wrong_layers() if case.names == (name,) and case.layer == layer)


def edited(layer, old, new):
    """The text of a right layer of the corpus with one edit."""
    text = right_layers()[layer]
    assert old in text
    return text.replace(old, new)


def subject_of(source, folder, name=""):
    path = folder / "homework.py"
    path.write_text(source)
    return load_file(path).subjects(name)[0]


def checked(source, folder, name="", **request):
    return check_subject(subject_of(source, folder, name), Request(**request))


# A right layer that offers much: a context, padding, weights that are returned. One edit breaks one promise.
OFFERS = """import math
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=bias) for _ in range(4))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, context=None, key_padding_mask=None, need_weights=False):
        source = x if context is None else context
        B, T, E = x.shape
        heads = (t.unflatten(-1, (self.num_heads, -1)) for t in (self.q(x), self.k(source), self.v(source)))
        q, k, v = (t.transpose(1, 2) for t in heads)
        scores = q @ k.mT / math.sqrt(self.head_dim)
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], -torch.inf)
        weights = scores.softmax(-1)
        dropped = self.drop(weights)
        y = self.o((dropped @ v).transpose(1, 2).reshape(B, T, E))
        return (y, weights) if need_weights else y
"""

# Edits that make it offer nothing beside the attention.
LESS = (
    "def forward(self, x, context=None, key_padding_mask=None, need_weights=False):\n",
    "def forward(self, x):\n        context = key_padding_mask = need_weights = None\n",
)


def broken(folder, *edits, **request):
    """The verdict on that layer with edits, each of an old and a new text."""
    source = OFFERS
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in source
        source = source.replace(old, new)
    return checked(source, folder, **request)


def names(verdict):
    return [one.name for one in verdict.mistakes]
