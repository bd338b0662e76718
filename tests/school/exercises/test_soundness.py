import re

import pytest
import torch

from regard.mistakes.mistake import Mistake
from regard.mistakes.search import MISTAKES
from regard.school.exercises.exercise import Exercise, Function, Judged, Layer, Question, Wrong
from regard.school.exercises.soundness import unsound


def arguments(random):
    return torch.randn(3, 5, generator=random), 7


def problems(*parts):
    return unsound(Exercise("e", "T.", parts))


def function(*wrong, **changes):
    options = {"arguments": arguments, "right": lambda x, n: x / n, "wrong": wrong, **changes}
    return Function("f", **options)


def test_the_exercise_of_these_tests_is_sound(exercise):
    assert unsound(exercise) == []


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (function(arguments=lambda random: 1 / 0), "f: its arguments fail: ZeroDivisionError: division by zero"),
        (function(right=lambda x: x), "f: right fails: TypeError"),
        (function(right=lambda x, n: object()), "f: what right returns cannot be compared"),
        (function(picture="map"), r"f: picture \(map\) must be empty or weights"),
        (function(Wrong("w", "s", lambda x, n: x * (1 / n))), "f: w: it is right for these arguments"),
        (function(Wrong("w", "s")), "f: w: it has neither act nor raises"),
        (function(Wrong("w", "{2}", lambda x, n: x)), "f: w: says has a place for no argument: IndexError"),
        (function(Wrong("w", "s", lambda x: x)), "f: w: act fails: TypeError"),
        (
            function(Wrong("v", "s", lambda x, n: x), Wrong("w", "s", lambda x, n: x.clone())),
            "f: v and w are the same function for these arguments; choose others, or leave one out",
        ),
        (
            function(Wrong("w", "s", lambda x, n: x), Wrong("w", "s", lambda x, n: -x)),
            "f: two wrong answers are called w",
        ),
        (
            Judged("j", lambda random: 3, print),
            "j: its arguments fail: ValueError: arguments of j returns the number 3",
        ),
        (Question("q", "b", {"B": "No."}), "q: because has a reason against b, which is right"),
        (Question("q", "b", {"a": "No.", "A": "No."}), "q: because has a choice twice"),
        (Question("q", "b", {"a": " "}), "q: because has no reason for a"),
        (Layer("L", mistakes=[MISTAKES[0]]), "L: .*: a known mistake has this name"),
        (
            Layer("L", mistakes=[Mistake("m", "think", max, "out", "s", "w", "f")]),
            r"L: m: step \(think\) must be one of read, project",
        ),
    ],
)
def test_what_is_unsound_is_said(part, says):
    (one,) = problems(part)
    assert re.search(says, one), one


def test_two_questions_of_one_name_are_unsound():
    assert problems(Question("q", 1), Question("q", 2)) == ["q: two questions have this name"]
