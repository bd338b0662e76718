import pytest
import torch

from mistakes.cases import mistake, random_case
from regard.mistakes.formula import Formula
from regard.mistakes.masking import MISTAKES
from regard.mistakes.mistake import formula_with, written_in

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


def test_plus_infinity_gives_nan_and_a_large_number_shows_only_the_future():
    infinite, large = (mistake(MISTAKES, "wrong sign of infinity", number) for number in (0, 1))
    assert Formula(hide=infinite.act).steps(random_case())["weights"][..., 0, :].isnan().all()
    weights = Formula(hide=large.act).steps(random_case())["weights"]
    assert (weights[..., 0, 0] == 0).all()


def test_a_mask_that_is_passed_has_one_mistake_of_its_own():
    case = random_case(causal=False, mask=torch.ones(5, 5, dtype=torch.bool).tril())
    assert [one.name for one in MISTAKES if one.step == "see" and one.applies(case)] == ["mask argument ignored"]


def weights_with(name, number=0, **options):
    return formula_with([mistake(MISTAKES, name, number)]).steps(random_case(**options))["weights"]


def test_a_mask_of_zeros_and_ones_hides_nothing():
    assert (weights_with("0/1 mask added") > 0).all()
    assert (weights_with("mask value too small: −1") > 0).all()


def test_zero_times_infinity_is_not_a_number():
    assert weights_with("0 · −∞ in the mask").isnan().all()


@pytest.mark.parametrize(("number", "head"), [(0, 0), (1, 2)])
def test_only_one_head_hides_the_future(number, head):
    sees = (weights_with("only some heads masked", number).triu(1) > 0).any(-1).any(-1).any(0)
    assert sees.tolist() == [h != head for h in range(3)]


def test_a_small_mask_value_is_tried_only_where_the_code_has_that_number():
    one = mistake(MISTAKES, "mask value too small: −1")
    assert written_in("att.masked_fill(future, -1.0)", [one])
    assert not written_in("att.masked_fill(future, -1e9).softmax(dim=-1)", [one])
