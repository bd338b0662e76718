import pytest

import regard.school.exercises
from regard.school.exercises.exercise import load_exercise
from school.exercises.exercises_for_tests import EXERCISE

PART = "from regard.school.exercises import Question\nparts = [Question('answer', 3)]\n"


def write(tmp_path, text):
    path = tmp_path / "exercise.py"
    path.write_text(text)
    return path


def test_a_folder_or_its_file_is_loaded(tmp_path):
    write(tmp_path, EXERCISE)
    for path in (tmp_path, tmp_path / "exercise.py", str(tmp_path)):
        exercise = load_exercise(path)
        assert (exercise.name, exercise.title) == (tmp_path.name, "Divide the scores by √head_dim.")
        assert [part.name for part in exercise.parts] == ["scale", "answer_1", "large", "attention"]
        assert not exercise.passes_unsolved


def test_it_may_pass_unsolved_and_import_what_lies_beside_it(tmp_path):
    (tmp_path / "beside_the_exercise.py").write_text("unsolved = True")
    text = f'"""A title.\n\nMore."""\nfrom beside_the_exercise import unsolved\npasses_unsolved = unsolved\n{PART}'
    exercise = load_exercise(write(tmp_path, text))
    assert (exercise.title, exercise.passes_unsolved) == ("A title.", True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PART, r"has no docstring; its first line is the exercise's title"),
        ('"""T."""\n', r"has no parts; write parts = \[Function\(...\)\], or Layer, Question, Judged"),
        ('"""T."""\nparts = []\n', r"has no parts"),
        ('"""T."""\nparts = [3]\n', r"3 is no part; parts are Function, Layer, Question and Judged"),
        (f'"""T."""\n{PART.replace("answer", "an answer")}', r"'an answer' is no name of Python"),
        ('"""T."""\nparts = [\n', r"exercise.py, line 2: '\[' was never closed \(SyntaxError\)"),
        ('"""T."""\n\nparts = [1 / 0]\n', r"exercise.py, line 3: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, says):
    with pytest.raises(ValueError, match=says):
        load_exercise(write(tmp_path, text))


def test_a_folder_without_an_exercise_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"exercise.py does not exist; an exercise is a file exercise.py with parts"):
        load_exercise(tmp_path)


def test_teachers_import_every_part_from_one_place():
    from regard.school.exercises import Fault, Function, Judged, Layer, Picture, Question, Wrong

    names = [one.__name__ for one in (Fault, Function, Judged, Layer, Picture, Question, Wrong)]
    assert names == regard.school.exercises.__all__
    assert Question("answer", "b").because == {}
    assert (Layer("attention").causal, Wrong("n", "s").act, Fault("n", "s").why) == (None, None, "")
    assert Judged("f", None, print).runs == 1
    assert Function("f", lambda random: (), max).runs == 3
