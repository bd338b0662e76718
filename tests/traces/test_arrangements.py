"""The same numbers, their axes in another order."""

import pytest
import torch

from regard.traces.arrangements import Numbers, arranged

B, H, T, D = 2, 3, 7, 5
HEADS = torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "other",
    [
        HEADS.transpose(1, 2),
        HEADS.mT,
        HEADS.reshape(B * H, T, D),
        HEADS.transpose(1, 2).reshape(B, T, H * D),
        HEADS.transpose(0, 1)[:, :, None],
        HEADS.double(),
    ],
)
def test_axes_may_be_swapped_and_joined(other):
    assert Numbers(HEADS).find(Numbers(other))
    assert Numbers(other).find(Numbers(HEADS))


@pytest.mark.parametrize("other", [HEADS.view(B, T, H, D), HEADS.view(B, T, H * D), HEADS.flip(2), HEADS + 0.01])
def test_other_numbers_in_their_places_are_something_else(other):
    assert not Numbers(HEADS).find(Numbers(other))
    assert not Numbers(other).find(Numbers(HEADS))


def test_axes_of_equal_size_keep_their_order_where_it_matters():
    scores = torch.randn(H, T, T)
    assert Numbers(scores).find(Numbers(scores.mT))
    assert not Numbers(scores).find(Numbers(scores.mT), ordered=True)
    assert Numbers(scores).find(Numbers(scores.movedim(0, 2)), ordered=True)


def test_what_one_of_them_hides_is_not_compared_on_request():
    scores = torch.randn(H, T, T)
    masked = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
    assert not Numbers(scores).find(Numbers(masked))
    assert Numbers(scores).find(Numbers(masked), hidden=False)
    assert Numbers(masked).find(Numbers(scores.masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)))
    assert not Numbers(scores + 1).find(Numbers(masked), hidden=False)


def test_the_hidden_matrix_is_one_for_all_heads():
    future = torch.ones(T, T).triu(1).bool()
    torch.testing.assert_close(Numbers(torch.randn(B, H, T, T).masked_fill(future, -torch.inf)).hidden, future)
    assert Numbers(torch.randn(B, H, T, T)).hidden is None
    assert Numbers(torch.tensor([-5000.0, -6000.0])).hidden is None


def test_one_head_is_part_of_all_heads():
    assert Numbers(HEADS[:, 1]).part_of(Numbers(HEADS), ordered=True)
    assert Numbers(HEADS[1, 2]).part_of(Numbers(HEADS), ordered=True)
    assert not Numbers(HEADS[:, 1] + 1).part_of(Numbers(HEADS), ordered=True)
    assert not Numbers(HEADS).part_of(Numbers(HEADS[:, 1]), ordered=True)


def test_tolerances_that_are_given_hold_for_each_number():
    one, other = torch.tensor([1.0, 100.0]), torch.tensor([1.01, 100.0])
    assert not Numbers(one).find(Numbers(other))
    assert Numbers(one, atol=0.1).find(Numbers(other))
    assert not Numbers(one, rtol=0.001, atol=0.0).find(Numbers(other))


def test_the_gap_is_among_visible_numbers_unless_only_the_hidden_differ():
    a = torch.tensor([[1.0, 2.0, -torch.inf], [3.0, 4.0, 5.0]])
    b = torch.tensor([[1.0, 2.5, 7.0], [3.0, 4.0, 5.0]])
    assert Numbers(a).gap(b.double(), Numbers(b)) == (0, 1)
    b[0, 1] = 2.0
    assert Numbers(a).gap(b.double(), Numbers(b)) == (0, 2)


def test_every_arrangement_has_the_sizes_asked_for():
    shapes = [tuple(one.shape) for one in arranged(HEADS, (B, T, H * D))]
    assert shapes == [(B, T, H * D)] * 2  # heads before channels, or behind them
    torch.testing.assert_close(next(arranged(HEADS, (B, H, T, D))), HEADS)
