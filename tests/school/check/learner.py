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
