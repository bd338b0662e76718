import pytest
import torch

from regard.school.exercises.parts import Question
from regard.school.exercises.plain_calls import Opaque
from regard.school.exercises.questions import answer_finding, plain_choice, quotes_missing


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
