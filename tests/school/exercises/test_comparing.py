import pytest
import torch

from regard.school.exercises.comparing import (
    answer_finding,
    describe_value,
    differing,
    first_difference,
    is_same,
    plain_choice,
    quotes_missing,
)
from regard.school.exercises.exercise import Question
from regard.school.exercises.plain_calls import Opaque

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (torch.eye(3), torch.eye(3, dtype=torch.bool)),
        (3, torch.tensor(3.0)),
        (True, 1),
        ([1, "a"], (1, "a")),
        ({"a": [torch.zeros(2)], "b": None}, {"b": None, "a": [torch.zeros(2)]}),
        (torch.tensor([1e6 + 1, INF, NAN]), torch.tensor([1e6, INF, NAN])),
        (torch.tensor([0.0, 1e-7]), torch.tensor([0.0, 0.0])),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1j])),
        (torch.zeros(2, 0), torch.zeros(2, 0)),
    ],
)
def test_the_same_however_it_is_written(seen, expected):
    assert is_same(seen, expected, 1e-5)


@pytest.mark.parametrize(
    ("seen", "expected", "name", "says"),
    [
        (None, 3, "returns nothing", "It returns None; expected the number 3. Is there a return?"),
        (3.0, torch.zeros(2, 3), "wrong shape", "It returns the number 3; expected a tensor of shape (2, 3)."),
        ([1], [1, 2], "another kind of result", "It returns a list of 1; expected a list of 2."),
        ({"a": 1}, {"b": 1}, "another kind of result", "It returns a dict with 'a'; expected a dict with 'b'."),
        ("ab", "ac", "", "It returns 'ab'; expected 'ac'."),
        (1.5, 2, "", "It returns 1.5; expected 2."),
        (-0.0, -2.5, "", "It returns 0; expected −2.5."),
        ([1, 5], (1, 7), "", "Part 1 of the result is 5; expected 7."),
        ({"w": [0, 1]}, {"w": [0, 2]}, "", "Part 1 of 'w' of the result is 1; expected 2."),
        (Opaque("object"), 3, "another kind of result", "It returns an object; expected the number 3."),
        (torch.tensor([INF]), torch.tensor([-INF]), "", "Its result differs."),
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, 2.0]), "", "Its result differs."),
        (torch.tensor([1.0, INF]), torch.tensor([1.0, 2.0]), "", "Its result differs."),
        (torch.tensor([1.0, -INF]), torch.tensor([0.0, -INF]), "", "Its result differs."),
    ],
)
def test_the_first_difference_is_said(seen, expected, name, says):
    difference = first_difference(seen, expected, 1e-5)
    assert (difference.name, difference.says) == (name, says)


def test_the_tolerance_is_of_the_largest_number():
    assert not is_same(torch.tensor([2e-6, 0.0]), torch.tensor([1e-6, 0.0]), 1e-5)
    assert is_same(torch.tensor([2e-6, 1.0]), torch.tensor([1e-6, 1.0]), 1e-5)


def test_an_example_shows_the_first_place_that_differs():
    expected = torch.arange(7 * 11, dtype=torch.float64).view(7, 11)
    seen = expected.clone()
    seen[5, 9] = 0
    example = first_difference(seen, expected, 1e-5).example
    assert example.about == "the result, row 4 to 6 of 7, column 5 to 10 of 11"
    torch.testing.assert_close(example.expected, expected[4:7, 5:11])
    torch.testing.assert_close(example.seen, seen[4:7, 5:11])
    assert differing(seen, expected, 1e-5).nonzero().tolist() == [[5, 9]]


def test_of_a_batch_the_matrix_that_differs_is_shown():
    expected = torch.arange(2 * 3 * 5 * 7, dtype=torch.float64).view(2, 3, 5, 7)
    seen = expected.clone()
    seen[1, 2, 0, 3] = 0
    example = first_difference(seen, expected, 1e-5).example
    assert example.about == "the result, at [1, 2], row 0 to 2 of 5, column 0 to 5 of 7"
    torch.testing.assert_close(example.expected, expected[1, 2, :3, :6])
    torch.testing.assert_close(example.seen, seen[1, 2, :3, :6])


def test_long_texts_are_cut():
    assert len(describe_value("x" * 1000)) < 70
    assert describe_value(torch.tensor(2.5)) == "a tensor with the number 2.5"


@pytest.mark.parametrize("given", ["b", " B ", "'b'"])
def test_the_right_choice_is_right_however_it_is_written(given):
    assert answer_finding(Question("answer", "b"), [given]) == []


@pytest.mark.parametrize("given", [(2, 3), [2, 3.0], "(2, 3)", "[2,3]", torch.tensor([2, 3]), torch.Size([2, 3])])
def test_shapes_are_compared_as_numbers(given):
    assert answer_finding(Question("shape", (2, 3)), [given]) == []
    assert answer_finding(Question("shape", "(2, 3)"), [given]) == []


def test_a_wrong_choice_is_named_with_its_reason():
    question = Question("heads", 12, {"64": "That is head_dim.", 7: "Seven."})
    (one,) = answer_finding(question, [64])
    assert (one.name, one.says) == ("heads: 64", "That is head_dim.")
    assert answer_finding(question, ["7"])[0].name == "heads: 7"


def test_another_answer_does_not_tell_the_right_one():
    (one,) = answer_finding(Question("heads", 12), [13])
    assert (one.name, one.says) == ("heads: another answer", "heads is the number 13; that is not it.")
    assert answer_finding(Question("heads", 12), [Opaque("object")])[0].name == "heads: another answer"


def test_an_answer_that_is_no_choice_is_told_the_letters():
    question = Question("divided_by", "b", {"c": "No.", "a": "No."})
    for given in ("the root", 3, "d"):
        (one,) = answer_finding(question, [given])
        assert one.name == "divided_by: another answer"
        assert one.says.endswith('; answer with the letter "a", "b" or "c", in quotes.')


def test_a_choice_without_quotes_is_told_them():
    questions = [Question("heads", 12), Question("divided_by", "b", {"a": "No."})]
    for choice in "ab":
        assert quotes_missing(questions, f"name '{choice}' is not defined") == f'A choice stands in quotes: "{choice}".'
    assert quotes_missing(questions, "name 'torch' is not defined") == ""


def test_true_is_no_number():
    assert plain_choice(True) != plain_choice(1)
