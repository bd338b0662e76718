"""Argument checks that layers share: the rule, the values and the remedy."""

import numpy as np
import pytest
import torch

from regard import arguments


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "3"])
def test_a_size_must_be_a_whole_number_of_at_least_one(size, without_shape_checks):
    with pytest.raises(ValueError, match=rf"d_in \({size}\) must be a whole number of at least 1"):
        arguments.check_whole(d_out=7, d_in=size)


def test_heads_that_do_not_divide_the_width_say_which_widths_and_heads_would():
    arguments.check_heads(768, 12)
    with pytest.raises(
        ValueError, match=r"d_out \(770\) must be divisible by num_heads \(12\); try 768 or 780, or 11, 14 or 22 heads$"
    ):
        arguments.check_heads(770, 12)
    with pytest.raises(ValueError, match=r"d_out \(5\) must be divisible by num_heads \(7\); try 7, or 5 heads$"):
        arguments.check_heads(5, 7)
    with pytest.raises(ValueError, match=r"d_out \(1\) must be divisible by num_heads \(2\); try 2, or 1 head$"):
        arguments.check_heads(1, 2)


@pytest.mark.parametrize(("width", "heads"), [(768, 7), (770, 12), (13, 5), (5, 12), (1600, 24)])
def test_every_number_of_heads_that_is_offered_divides_the_width(width, heads):
    offered = [int(n) for n in arguments.near_divisors(width, heads).replace(" or", ",").split(",")]
    assert offered == sorted(offered)
    assert all(width % n == 0 for n in offered)
    assert not any(width % n == 0 for n in range(max([n for n in offered if n < heads]) + 1, heads))


@pytest.mark.parametrize("share", [-0.1, 1.0, True, float("nan")])
def test_a_share_is_at_least_zero_and_below_one(share, without_shape_checks):
    with pytest.raises(ValueError, match=rf"repeat \({share}\) must be at least 0 and below 1; 0.1 is usual"):
        arguments.check_share("repeat", share, "0.1 is usual")


def test_tensors_are_described_in_messages():
    assert arguments.describe_tensor(torch.ones(2, 3, dtype=torch.bool)) == "bool of shape (2, 3)"
    assert arguments.name_of(torch.bfloat16) == "bfloat16"
    assert arguments.list_few(torch.arange(9)) == "0, 1, 2, 3, 4, 5, …"
    assert arguments.list_few(torch.tensor([5, 3])) == "5, 3"


def test_only_whole_numbers_are_integers():
    kinds = {torch.int32: True, torch.uint8: True, torch.bool: False, torch.float16: False, torch.complex64: False}
    assert {dtype: arguments.is_integer(torch.zeros(1, dtype=dtype)) for dtype in kinds} == kinds


def test_the_dtype_of_autocast_is_known_where_it_is_on():
    assert arguments.autocast_dtype("cpu") is None
    assert arguments.autocast_dtype("meta") is None
    with torch.autocast("cpu", torch.bfloat16):
        assert arguments.autocast_dtype("cpu") is torch.bfloat16


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0]], r"^x must be a tensor, not list; pass torch\.tensor\(x\)$"),
        (np.ones((2, 3)), r"^x must be a tensor, not ndarray; pass torch\.as_tensor\(x\)$"),
    ],
)
def test_what_is_no_tensor_says_how_to_make_one(value, message):
    arguments.check_tensor(y=torch.ones(2))
    with pytest.raises(ValueError, match=message):
        arguments.check_tensor(y=torch.ones(2), x=value)
