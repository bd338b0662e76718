import pytest
import torch
from torch import nn

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.explain.plainness import beyond_the_formula
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from regard.school.check.verdict import Finding
from school.check.learner import LESS, Learner, broken, checked

SAYS = "It computes something else, and no known mistake explains it. The first step that differs: scores."


def problem(layer):
    result = experiment(LocalSubject(layer), PROBES[0], 0, Request())
    return beyond_the_formula(result, Finding("", SAYS, step="scores", line=7))


def test_a_layer_of_nothing_but_projections_is_plain():
    assert problem(Learner) == ""


class WithWindow(Learner):
    def forward(self, x):
        window = 3
        return super().forward(x) * window


class WithNorm(Learner):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__(d_in, d_out, context_length, dropout, num_heads)
        self.extra = nn.LayerNorm(3)


@pytest.mark.parametrize(("layer", "what"), [(WithWindow, "a pattern of visible tokens"), (WithNorm, "a norm")])
def test_what_stands_beside_the_formula_is_said_with_the_line(layer, what):
    ending = "and what that should compute is not known here; the first step that differs: scores (line 7)."
    assert problem(layer) == f"it has {what} beside the formula, {ending}"


class WithSomething(Learner):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__(d_in, d_out, context_length, dropout, num_heads)
        self.something = nn.Parameter(torch.ones(5, 4, 3, 2))


def test_weights_that_are_no_projections_are_said():
    assert "weights such as something" in problem(WithSomething)


def test_a_failure_counts_only_where_names_say_what_was_passed(tmp_path):
    fails = ("y = self.o(", "y = x.view(7, 7) + self.o(")
    assert broken(tmp_path, *LESS, *fails).status == "wrong"
    unknown = broken(tmp_path, *LESS, *fails, "def forward(self, x):", "def forward(self, x, thing):")
    assert unknown.status == "unchecked"
    assert unknown.problem.startswith("what thing is, no name says: it could not be called: ")


DICT = """
import numpy as np
def attn_apply(params, x):
    q, k, v = (np.einsum("btm,mhd->bthd", x, params[name]) for name in ("wq", "wk", "wv"))
    scores = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return np.einsum("bthd,hdm->btm", np.einsum("bhts,bshd->bthd", weights, v), params["wo"])
"""


def test_a_dict_of_weights_is_a_guess(tmp_path):
    verdict = checked(DICT, tmp_path)
    assert verdict.status == "unchecked"
    assert verdict.problem.startswith("what its dict of weights must hold is a guess: it could not be called: ")


SIZED = """
import torch
from torch import nn
class LocalAttention(nn.Module):
    def __init__(self, d_model, n_heads, SIZE):
        super().__init__()
        self.h, self.size = n_heads, SIZE
        self.qkv, self.o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        i = torch.arange(x.shape[1])
        seen = SEEN
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize(
    ("size", "seen"),
    [
        ("ventana", "(i[:, None] >= i) & (i[:, None] - i < self.size)"),
        ("chunk", "i // self.size <= i[:, None] // self.size"),
    ],
)
def test_a_number_that_decides_which_tokens_are_seen_and_has_no_known_name_is_not_judged(size, seen, tmp_path):
    verdict = checked(SIZED.replace("SIZE", size).replace("SEEN", seen), tmp_path)
    assert verdict.problem == f"what {size} is, no name says, and it decides which tokens are seen"


def test_a_configuration_of_known_names_is_no_guess(tmp_path):
    source = SIZED.replace("d_model, n_heads, SIZE", "config").replace("d_model", "config.n_embd")
    source = source.replace("n_heads, SIZE", "config.n_head, config.KIND").replace("SEEN", "i[:, None] >= i")
    source = source.replace("q.shape[-1]", "q.view(7, 7).shape[-1]").replace("Local", "Self")
    assert checked(source.replace("KIND", "block_size"), tmp_path).status == "wrong"
    unknown = checked(source.replace("KIND", "flavour"), tmp_path)
    assert unknown.problem.startswith("its constructor takes flavour, and nothing is known of that")
