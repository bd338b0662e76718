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
    "scaled twice": 1 / 7,
    "integer division in the scale: it is 0": 0.0,
    "integer division in the scale: it is 1": 1.0,
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
    assert others == ["scores ignored", "scores with the wrong sign", "einsum letters: query and key summed apart"]


def test_scores_may_have_the_wrong_sign_or_be_sums_apart():
    q, k = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 5, 7)
    assert mistake(MISTAKES, "scores with the wrong sign").act(q, k, random_case()).equal(-(q @ k.mT))
    apart = mistake(MISTAKES, "einsum letters: query and key summed apart").act(q, k, random_case())
    torch.testing.assert_close(apart, torch.einsum("bhid,bhje->bhij", q, k))


def test_keys_that_are_not_transposed_need_as_many_tokens_as_numbers():
    one = mistake(MISTAKES, "keys not transposed")
    assert not one.applies(random_case())
    assert one.applies(random_case(T=7))
    turned = mistake(MISTAKES, "keys transposed on the wrong axes", 1)
    q, k = torch.randn(7, 1, 7, 7), torch.randn(7, 1, 7, 7)
    assert turned.act(q, k, random_case(H=1, T=7, B=7)).equal((q[:, 0] @ k[:, 0].transpose(0, 2))[:, None])


def test_scores_may_be_divided_with_floor():
    one = mistake(MISTAKES, "integer division of the scores")
    assert one.act(torch.tensor([3.0, -1.0]), random_case()).tolist() == [1.0, -1.0]
