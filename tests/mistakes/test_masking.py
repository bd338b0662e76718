import pytest
import torch

from mistakes.cases import mistake, random_case
from regard.mistakes.formula import Formula
from regard.mistakes.masking import MISTAKES

SEEN = {
    "no causal mask": [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
    "mask polarity inverted": [[0, 1, 1], [0, 0, 1], [0, 0, 0]],
    "mask polarity inverted, the diagonal kept": [[1, 1, 1], [0, 1, 1], [0, 0, 1]],
    "mask off by one: the token itself hidden": [[0, 0, 0], [1, 0, 0], [1, 1, 0]],
    "mask off by one: one future token seen": [[1, 1, 0], [1, 1, 1], [1, 1, 1]],
}


@pytest.mark.parametrize("name", SEEN)
def test_a_wrong_mask_shows_these_tokens(name):
    assert mistake(MISTAKES, name).act(random_case(T=3)).int().tolist() == SEEN[name]


@pytest.mark.parametrize(("name", "dim"), [("queries", -2), ("heads", 1), ("batch", 0)])
def test_a_softmax_over_another_axis_sums_to_one_there(name, dim):
    one = mistake(MISTAKES, f"softmax over the {name}")
    weights = Formula(hide=one.act).steps(random_case(causal=False))["weights"]
    torch.testing.assert_close(weights.sum(dim), torch.ones_like(weights.sum(dim)))


def test_weights_hidden_after_the_softmax_do_not_sum_to_one():
    weights = Formula(hide=mistake(MISTAKES, "mask after softmax without renormalising").act).steps(random_case())[
        "weights"
    ]
    assert (weights.triu(1) == 0).all()
    assert (weights.sum(-1)[..., :-1] < 1).all()


def test_plus_infinity_gives_nan_and_a_large_number_shows_only_the_future():
    infinite, large = (mistake(MISTAKES, "wrong sign of infinity", number) for number in (0, 1))
    assert Formula(hide=infinite.act).steps(random_case())["weights"][..., 0, :].isnan().all()
    weights = Formula(hide=large.act).steps(random_case())["weights"]
    assert (weights[..., 0, 0] == 0).all()


def test_a_mask_that_is_passed_has_one_mistake_of_its_own():
    case = random_case(causal=False, mask=torch.ones(5, 5, dtype=torch.bool).tril())
    assert [one.name for one in MISTAKES if one.step == "see" and one.applies(case)] == ["mask argument ignored"]
