"""Leak hunt, by gradient."""

import re

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong


def causal(x):
    return torch.ones(len(x), len(x), dtype=torch.bool).tril()


def A(x):
    return (x @ x.T).masked_fill(~causal(x), -torch.inf).softmax(-1) @ x


def B(x):
    return ((x @ x.T).softmax(-1) * causal(x)) @ x


def C(x):
    return A(x - x.mean(dim=0))


def D(x):
    return A(x / x.norm(dim=1, keepdim=True))


def E(x):
    return A(x.flip(0)).flip(0)


LAYERS = {"A": A, "B": B, "C": C, "D": D, "E": E}


def arguments(random):
    return "ABCDE"[int(torch.randint(5, (), generator=random))], torch.randn(7, 3, generator=random)


def gradients(letter, x):
    """∂ out[i].sum() / ∂ x, as (T, T, E)."""
    return torch.autograd.functional.jacobian(lambda x: LAYERS[letter](x).sum(-1), x)


def judge(letters):
    if not isinstance(letters, (list, tuple, str)):
        return Fault("no letters", 'leaking() must return a list of letters, such as ["A", "E"].')
    texts = [str(one).strip().upper() for one in ([letters] if isinstance(letters, str) else letters)]
    found = {letter for text in texts for letter in re.findall(r"\b[A-Z]\b", text) or text}
    for letter in sorted(found - set("BCE")):
        if letter not in LAYERS:
            return Fault("no such layer", f"{letter!r} is none of A, B, C, D and E; return a list of letters.")
        return Fault(
            f"{letter} accused",
            f"{letter} does not leak: its matrix is 0 above the diagonal, for any x.",
        )
    missing = set("BCE") - found
    if missing:
        count = "One more layer leaks" if len(missing) == 1 else f"{len(missing)} more layers leak"
        return Fault(
            f"{len(missing)} missed",
            f"{count}; look above the diagonal of each matrix, also for small numbers.",
            "Run your file with python: it prints the matrices of all five.",
        )
    return None


parts = [
    Function(
        "sensitivity",
        arguments,
        right=lambda letter, x: gradients(letter, x).norm(dim=-1),
        wrong=[
            Wrong(
                "first coordinate only",
                "The gradient is that of out[i][0], one number of the output; it is that of their sum.",
                lambda letter, x: torch.autograd.functional.jacobian(lambda x: LAYERS[letter](x)[:, 0], x).norm(dim=-1),
            ),
            Wrong(
                "largest instead of norm",
                "Row i holds the largest number of each gradient; it is the norm.",
                lambda letter, x: gradients(letter, x).amax(-1),
            ),
            Wrong(
                "gradients pile up",
                "Each row also holds the rows before it: x.grad adds up until it is set back.",
                lambda letter, x: gradients(letter, x).cumsum(0).norm(dim=-1),
                why="backward() adds to x.grad; set x.grad = None before each row, or use torch.autograd.grad.",
            ),
            Wrong(
                "rows and columns swapped",
                "Row i, column j holds ∂out_j/∂x_i; it is ∂out_i/∂x_j.",
                lambda letter, x: gradients(letter, x).norm(dim=-1).T,
            ),
            Wrong(
                "one gradient for all",
                "Every row is the gradient of out.sum(); row i is that of out[i].sum().",
                lambda letter, x: gradients(letter, x).sum(0).norm(dim=-1).expand(len(x), -1),
                why="The sum over all outputs does not tell which output depends on which token.",
            ),
            Wrong(
                "sums instead of norms",
                "The gradients are summed over the width, where they cancel; take their norm.",
                lambda letter, x: gradients(letter, x).sum(-1),
            ),
            Wrong(
                "absolute sums instead of norms",
                "Row i holds the sums of absolute values; it is the norm, the root of the sum of squares.",
                lambda letter, x: gradients(letter, x).abs().sum(-1),
            ),
            Wrong(
                "graph freed",
                "The second row fails: torch frees the graph after the first gradient.",
                raises="backward through the graph a second time",
                why="retain_graph=True keeps it; or compute out again for each row.",
            ),
            Wrong(
                "gradient of a vector",
                "out[i] is a vector; the gradient is that of one number, out[i].sum().",
                raises="grad can be implicitly created only for scalar",
            ),
            Wrong(
                "squares",
                "The squares are added up; a norm is the root of that.",
                lambda letter, x: gradients(letter, x).norm(dim=-1) ** 2,
            ),
            Wrong(
                "mean of the output",
                "The gradient is that of out[i].mean(); it is that of the sum.",
                lambda letter, x: gradients(letter, x).norm(dim=-1) / x.shape[-1],
            ),
            Wrong(
                "lower triangle",
                "What lies above the diagonal was set to 0: that is where a leak shows.",
                lambda letter, x: gradients(letter, x).norm(dim=-1).tril(),
            ),
            Wrong(
                "one tensor for all rows",
                "All rows are the same: the list holds one tensor, x.grad, several times. Keep a copy of each: "
                "x.grad.clone().",
                lambda letter, x: gradients(letter, x).norm(dim=-1)[-1:].expand(len(x), -1),
            ),
        ],
        runs=5,
    ),
    Judged("leaking", lambda random: (), judge),
]
