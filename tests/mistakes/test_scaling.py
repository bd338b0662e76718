import pytest
import torch

from mistakes.cases import mistake, random_case
from regard.mistakes.scaling import MISTAKES

FACTORS = {
    "scale by √d_model": 21**-0.5,
    "scale by √d_in": 13**-0.5,
    "scale inverted": 7**0.5,
    "no scale": 1.0,
    "missing root": 1 / 7,
    "missing root of d_model": 1 / 21,
    "scale by √num_heads": 3**-0.5,
    "scale by √T": 5**-0.5,
    "scores ignored": 0.0,
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_wrong_scale_multiplies_by_its_number(name):
    one = mistake(MISTAKES, name)
    assert one.applies(random_case())
    assert one.act(torch.ones(2), random_case()).tolist() == pytest.approx([FACTORS[name]] * 2)


def test_a_constant_is_tried_only_where_the_code_shows_one():
    one = mistake(MISTAKES, "scale is a constant")
    assert not one.applies(random_case())
    assert one.applies(random_case(factor=0.125))
    assert "divided by 8" in one.describe(random_case(factor=0.125))


def test_simplified_attention_is_not_scaled():
    one = mistake(MISTAKES, "scaled where nothing is")
    assert one.applies(random_case(scaled=False))
    others = [other.name for other in MISTAKES if other is not one and other.applies(random_case(scaled=False))]
    assert others == ["scores ignored"]
