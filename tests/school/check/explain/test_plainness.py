import pytest
import torch
from torch import nn

from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.explain.plainness import beyond_the_formula
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from regard.school.check.verdict import Finding
from school.check.learner import LESS, Learner, broken

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
