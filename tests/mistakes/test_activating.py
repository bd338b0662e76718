import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from mistakes.cases import mistake, random_case
from regard.mistakes.activating import MISTAKES
from regard.mistakes.formula import Formula
from regard.mistakes.mistake import formula_with, written_in

RIGHT = Formula().steps(random_case())


@pytest.mark.parametrize(
    ("name", "step", "expected"),
    [
        ("activation inside: relu of the queries, keys and values", "keys", RIGHT["keys"].relu()),
        ("activation inside: gelu of the queries", "queries", F.gelu(RIGHT["queries"])),
        ("activation inside: silu of the values", "values", F.silu(RIGHT["values"])),
        ("activation inside: tanh of the scores", "scores", RIGHT["scores"].tanh()),
        ("activation inside: tanh of the scaled scores", "scaled", RIGHT["scaled"].tanh()),
        ("activation inside: abs of the context", "context", RIGHT["context"].abs()),
        ("norm inside: a norm to unit length of the values", "values", F.normalize(RIGHT["values"], dim=-1)),
    ],
)
def test_a_step_goes_through_an_activation_or_a_norm(name, step, expected):
    assert_close(formula_with([mistake(MISTAKES, name)]).steps(random_case())[step], expected)


def test_an_activation_of_queries_leaves_keys_and_values():
    made = formula_with([mistake(MISTAKES, "activation inside: gelu of the queries")]).steps(random_case())
    assert_close(made["keys"], RIGHT["keys"])
    assert_close(made["values"], RIGHT["values"])


def test_only_the_activations_that_the_code_names_are_tried():
    tried = written_in("q = F.gelu(self.q(x))", MISTAKES)
    assert tried
    assert {one.name.split()[2] for one in tried} == {"gelu"}


def test_an_activation_before_the_scale_that_is_the_same_after_it_is_listed_once():
    assert not [one for one in MISTAKES if one.name == "activation inside: relu of the scores"]
    assert torch.equal(torch.relu(RIGHT["scores"]) / 2, torch.relu(RIGHT["scores"] / 2))
