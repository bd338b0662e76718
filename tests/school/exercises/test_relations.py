"""Wrong results that no wrong answer explains: how they belong to the right ones is told, if it holds every time."""

import pytest
import torch

from regard.school.exercises.relations import find_relation


def related(change, right=lambda x: x.cumsum(-1) + 1, runs=3, shape=(5, 7), seed=0):
    """The name of the relation between results that are changed, and what it says."""
    random = torch.Generator().manual_seed(seed)
    arguments = [(torch.randn(shape, generator=random),) for _ in range(runs)]
    found = find_relation([(one, change(right(*one), *one), right(*one)) for one in arguments], ["x"], 1e-5)
    return (found.name, found.says) if found else ("", "")


CHANGES = {
    "sign reversed": lambda y, x: -y,
    "all zero": lambda y, x: 0 * y,
    "off by a factor": lambda y, x: 3 * y,
    "off by a constant": lambda y, x: y - 2,
    "without the sign": lambda y, x: y.abs(),
    "NaN": lambda y, x: y.log(),
    "softmax on top": lambda y, x: y.softmax(0),
    "x returned": lambda y, x: x,
    "x added": lambda y, x: x + y,
    "axes exchanged": lambda y, x: y.T,
    "axes in another order": lambda y, x: torch.zeros(7, 5),
    "right numbers in another shape": lambda y, x: y.flatten(),
    "joined on another axis": lambda y, x: y.T.reshape(35, 1),
    "added up along an axis": lambda y, x: y.sum(0),
    "averaged along an axis": lambda y, x: y.mean(1),
    "the last only": lambda y, x: y[-1],
    "an axis is gone": lambda y, x: torch.zeros(7),
    "too few along an axis": lambda y, x: y[:, :3],
    "too many axes": lambda y, x: y[None].repeat(2, 1, 1),
    "reversed along an axis": lambda y, x: y.flip(0),
    "shifted by one": lambda y, x: y.roll(1, 1),
    "another order along an axis": lambda y, x: y[[1, 0, 4, 2, 3]],
    "only the first are right": lambda y, x: torch.cat([y[:2], y[2:] + 7 * x[2:] ** 3]),
    "only the last are right": lambda y, x: torch.cat([y[:2] + 7 * x[:2] ** 3, y[2:]]),
    "a list instead of a tensor": lambda y, x: list(y),
    "a pair": lambda y, x: (y, x),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_relation_has_its_name(name):
    found, says = related(CHANGES[name])
    assert found == name
    assert says.startswith("The result ")


def test_numbers_of_one_axis_may_stand_in_another_order():
    found, _ = related(lambda y, x: y[[3, 1, 0, 2]], shape=(4,))
    assert found == "another order along an axis"
    assert related(lambda y, x: y * torch.nan, shape=(4,))[0] == "NaN"


def test_what_belongs_in_no_known_way_is_not_named():
    assert related(lambda y, x: y + 0.3 * x**3 - x.flip(0)) == ("", "")


def test_a_relation_that_does_not_hold_every_time_is_not_told():
    calls = iter(range(9))
    assert related(lambda y, x: 3 * y if next(calls) else -y + x**3) == ("", "")


@pytest.mark.parametrize(
    ("change", "name"),
    [(lambda y, x: 3 * y, "off by a factor"), (lambda y, x: y + 2, "off by a constant"), (lambda y, x: y + x[0], "")],
)
def test_between_single_numbers_a_factor_or_constant_must_be_the_same_each_time(change, name):
    assert related(change, right=lambda x: x.sum(), shape=(5,))[0] == name


def test_of_a_tuple_the_first_part_that_differs_is_told():
    found, says = related(lambda y, x: (y[0], -y[1]), right=lambda x: (x, 2 * x + 1))
    assert (found, says) == ("sign reversed", "Part 1 of the result has the opposite sign.")


def test_tuples_of_tensors_and_dicts_have_relations_of_their_own():
    a, b = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    for seen, right, name in (
        (torch.stack([a, b]), (a, b), "one tensor instead of several"),
        ((a, b, a), (a, b), "another number of parts"),
        ({"x": a}, {"x": a, "y": b}, "entries missing"),
        ({"x": a, "y": b}, {"x": a}, "entries too many"),
        ([a, b], torch.stack([a, b], 1), "a list instead of a tensor"),
        (([2.0, 4.0], a), ([1.0, 2.0], a), "off by a factor"),
    ):
        found = find_relation([((), seen, right)], [], 1e-5)
        assert (name, found and found.name) == (name, name)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ([1, 2, 3, 4], "too long"),
        ([9, 1, 2, 3], "too long"),
        ([1, 2], "too short"),
        ([2, 3], "too short"),
        ([3, 2, 1], "reversed"),
        ([2, 1, 3], "another order"),
        ([1, 5, 3, 4], "too many entries"),
        ([[1, 2, 3]], "a list in a list"),
        ([2, 3, 9], "the first is missing"),
        (([1, 2, 3], 7), "part of what is returned"),
        ({"a": 1, "b": 2, "c": 3}, "a dict instead of a tuple"),
        ([torch.tensor([1]), torch.tensor(2), 3], "tensors instead of numbers"),
        (torch.tensor([1, 2, 3]), "a tensor instead of a list"),
        ([1, 5, 3], ""),
    ],
)
def test_lists_have_relations_of_their_own(seen, name):
    found = find_relation([((), seen, [1, 2, 3])], [], 1e-5)
    assert (found.name if found else "") == name
