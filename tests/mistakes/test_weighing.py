import pytest
import torch
from torch.testing import assert_close

from mistakes.cases import mistake, random_case
from regard.mistakes.formula import Formula
from regard.mistakes.mistake import formula_with
from regard.mistakes.weighing import MISTAKES


def steps(name, number=0, **options):
    return formula_with([mistake(MISTAKES, name, number)]).steps(random_case(**options))


@pytest.mark.parametrize(("name", "dim"), [("queries", -2), ("heads", 1), ("batch", 0)])
def test_a_softmax_over_another_axis_sums_to_one_there(name, dim):
    weights = steps(f"softmax over the {name}", causal=False)["weights"]
    assert_close(weights.sum(dim), torch.ones_like(weights.sum(dim)))


def test_weights_hidden_after_the_softmax_do_not_sum_to_one():
    weights = steps("mask after softmax without renormalising")["weights"]
    assert (weights.triu(1) == 0).all()
    assert (weights.sum(-1)[..., :-1] < 1).all()


def test_scaled_after_the_softmax_a_row_sums_to_less():
    made = steps("scaled after the softmax")
    assert_close(made["scaled"], made["scores"])
    assert_close(made["weights"].sum(-1), torch.full((2, 3, 5), 7**-0.5, dtype=torch.float64))


def test_without_a_softmax_the_scores_are_the_weights():
    made = steps("no softmax", causal=False)
    assert_close(made["weights"], made["scaled"])
    assert (steps("no softmax", 1)["weights"].triu(1) == 0).all()


def test_a_second_softmax_shows_hidden_tokens():
    assert (steps("softmax twice")["weights"] > 0).all()


@pytest.mark.parametrize("name", ["sigmoid", "relu", "tanh"])
def test_an_activation_may_stand_in_place_of_the_softmax(name):
    made = steps(f"{name} in place of the softmax", causal=False)
    assert_close(made["weights"], getattr(torch, name)(made["scaled"]))


def test_without_keepdim_a_weight_is_divided_by_the_sum_of_another_row():
    made = steps("keepdim missing", H=1, B=1, causal=False)
    powers = made["scaled"].exp()
    assert_close(made["weights"][0, 0, 1, 3], powers[0, 0, 1, 3] / powers[0, 0, 3].sum())


def test_weights_may_be_summed_over_the_wrong_axis():
    made = steps("weights transposed: summed over the queries", causal=False)
    right = Formula().steps(random_case(causal=False))
    assert_close(made["context"], right["weights"].mT @ right["shared values"])
