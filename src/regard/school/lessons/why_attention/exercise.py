"""Why attention? How far a word reaches."""

import torch
from regard.school.exercises import Function, Question, Wrong
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Q, self.K, self.V = (nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x):
        return torch.softmax(self.Q(x) @ self.K(x).T / 32**0.5, dim=-1) @ self.V(x)


def make_run(measure):
    """`run` of the learner's file with another `reach`."""

    def run(kind, T):
        layers = {"rnn": nn.RNN, "gru": nn.GRU}
        layer = Attention() if kind == "attention" else layers[kind](32, 32)
        x = torch.randn(T, 32).requires_grad_()
        with torch.enable_grad():
            out = layer(x) if kind == "attention" else layer(x)[0]
            return measure(out, x).detach()

    return run


def gradient(number, x):
    return torch.autograd.grad(number, x)[0]


right = make_run(lambda out, x: gradient(out[-1].sum(), x).norm(dim=-1))
wrong = [
    Wrong(
        "all outputs",
        "The gradient is that of all outputs together; the question is what reaches the last one: out[-1].",
        make_run(lambda out, x: gradient(out.sum(), x).norm(dim=-1)),
        why="Every word reaches its own output. Summed over all, near and far cannot be told apart.",
    ),
    Wrong(
        "the first output",
        "The gradient is that of the first output, out[0]; the last one is out[-1].",
        make_run(lambda out, x: gradient(out[0].sum(), x).norm(dim=-1)),
    ),
    Wrong(
        "one number of the output",
        "The gradient is that of one number of the last output; add up all of them.",
        make_run(lambda out, x: gradient(out[-1, 0], x).norm(dim=-1)),
    ),
    Wrong(
        "one number of every output",
        "The gradient is that of the last number of every output, out[:, -1]; the last output is out[-1].",
        make_run(lambda out, x: gradient(out[:, -1].sum(), x).norm(dim=-1)),
    ),
    Wrong(
        "squares of the output",
        "The numbers of the last output are squared before they are added up.",
        make_run(lambda out, x: gradient(out[-1].square().sum(), x).norm(dim=-1)),
    ),
    Wrong(
        "square of the length",
        "The squares of a gradient's numbers are added up; its length is the root of that.",
        make_run(lambda out, x: gradient(out[-1].sum(), x).square().sum(-1)),
    ),
    Wrong(
        "last number of the last output",
        "The gradient is that of one number of the last output, the last; add up all of them.",
        make_run(lambda out, x: gradient(out[-1, -1], x).norm(dim=-1)),
    ),
    Wrong(
        "length of the words",
        "These are the lengths of the words themselves, x.norm; what is asked for is in x.grad.",
        make_run(lambda out, x: x.norm(dim=-1)),
    ),
    Wrong(
        "mean instead of sum",
        "The last output is averaged, not added up: everything is 32 times smaller.",
        make_run(lambda out, x: gradient(out[-1].mean(), x).norm(dim=-1)),
    ),
    Wrong(
        "signs cancel",
        "The gradient of each word is added up with its signs, so parts cancel; its length is .norm(dim=-1).",
        make_run(lambda out, x: gradient(out[-1].sum(), x).sum(-1)),
    ),
    Wrong(
        "added without signs",
        "The sizes of a gradient's numbers are added up; its length is .norm(dim=-1), the root of the sum of squares.",
        make_run(lambda out, x: gradient(out[-1].sum(), x).abs().sum(-1)),
    ),
    Wrong(
        "mean without signs",
        "The sizes of a gradient's numbers are averaged; its length is .norm(dim=-1).",
        make_run(lambda out, x: gradient(out[-1].sum(), x).abs().mean(-1)),
    ),
    Wrong(
        "one length for all",
        "That is one length for all words together; it is wanted for each word: dim=-1.",
        make_run(lambda out, x: gradient(out[-1].sum(), x).norm()),
    ),
    Wrong(
        "length of the output",
        "The gradient starts at the length of the last output; it starts at the sum of its numbers.",
        make_run(lambda out, x: gradient(out[-1].norm(), x).norm(dim=-1)),
    ),
    Wrong(
        "not the length",
        "The gradient comes back as it is, 32 numbers for each word; its length is .norm(dim=-1).",
        make_run(lambda out, x: gradient(out[-1].sum(), x)),
    ),
    Wrong(
        "length over the words",
        "The length is taken over the words, for each of the 32 numbers; it is wanted for each word: dim=-1.",
        make_run(lambda out, x: gradient(out[-1].sum(), x).norm(dim=0)),
    ),
    Wrong(
        "shares",
        "The lengths are divided by their sum, or by the last; return them as they are.",
        make_run(lambda out, x: divided(gradient(out[-1].sum(), x).norm(dim=-1))),
    ),
    Wrong(
        "the output's length",
        "These are the lengths of the outputs; the question is the gradient of the last one with respect to x.",
        make_run(lambda out, x: out.norm(dim=-1)),
    ),
    Wrong(
        "no gradient",
        "x.grad is None: .backward() was not called.",
        raises="'NoneType' object has no attribute",
        why="backward() writes the gradient into x.grad.",
    ),
    Wrong(
        "not one number",
        "backward() starts from one number: out[-1] is 32 numbers; add them up.",
        raises="grad can be implicitly created only for scalar",
    ),
]


def divided(lengths):
    return lengths / lengths.sum()


def arguments(kind):
    return lambda random: (kind, int(torch.randint(7, 13, (), generator=random)))


parts = [
    *(Function("run", arguments(kind), right, wrong, tolerance=1e-3, runs=1) for kind in ("rnn", "attention", "gru")),
    Question(
        "library",
        right="c",
        because={
            "a": "Turned round: the query is what you look for, and the value is what you take home.",
            "b": "The card is not what you look for. It is what the book is filed under.",
        },
    ),
    Question(
        "scores",
        right=(1024, 4096),
        because={
            (32, 64): "That is one score for each word. Every word is compared with every word.",
            (496, 2016): "Those are the pairs of different words, each once. A query meets every key, its own too.",
            (528, 2080): "Each pair is there twice: word 3 asks word 5, and word 5 asks word 3.",
            (992, 4032): "A word is compared with itself, too.",
            (1024, 2048): "For twice the words it is not twice as many: both sides of the square grow.",
            1024: "Two numbers are asked for: (for T = 32, for T = 64).",
            4096: "Two numbers are asked for: (for T = 32, for T = 64).",
        },
    ),
]
