from dataclasses import replace
from types import ModuleType

import pytest
import torch

from regard.school.check.own_file import read_verdicts
from regard.school.check.sandboxed import Submission
from regard.school.exercises.exercise import load_exercise
from regard.school.exercises.layers import check_layer, drive_layer

EXERCISE = '''"""Attention."""
from regard.school.exercises import Layer, Question
from regard.mistakes.mistake import Mistake


def doubled(scores, case):
    return scores / (2 * case.head_dim**0.5)


own = Mistake("twice the root", "scale", doubled, "scaled", "It is √{head_dim}.", "Flat.", "scores / head_dim**0.5")
parts = [Question("n", 3), Layer("attention", causal=False, mistakes=[own])]
'''
ANSWER = "print('here')\ndef attention(q, k, v):\n    return (q @ k.mT / SCALE).softmax(-1) @ v\n"


@pytest.fixture
def own(tmp_path):
    (tmp_path / "exercise.py").write_text(EXERCISE)
    return load_exercise(tmp_path)


@pytest.fixture
def checked(own, worker, tmp_path):
    def check(source, exercise=own):
        path = tmp_path / "answer.py"
        path.write_text(source)
        return check_layer(exercise, exercise.parts[1], Submission(path, worker, 20.0), source, str(path), 5)

    return check


@pytest.mark.parametrize(
    ("scale", "names"),
    [("k.shape[-1] ** 0.5", []), ("2 / k.shape[-1] ** 0.5", ["twice the root"]), ("1", ["no scale"])],
)
def test_own_and_known_mistakes_are_named_in_one_process_and_in_many(checked, own, worker, scale, names):
    source = ANSWER.replace("SCALE", scale)
    before = worker._number
    one, printed = checked(source)
    assert printed == "here\n"
    assert worker._number == before + 1
    many, _ = checked(source, replace(own, path=None))
    assert worker._number > before + 2
    for verdict in (one, many):
        assert [mistake.name for mistake in verdict.mistakes] == names
        assert [mistake.line for mistake in verdict.mistakes] == [3] * len(names)
    assert one.task == many.task == "scaled dot-product attention of q, k and v"
    for a, b in zip(one.mistakes, many.mistakes, strict=True):
        torch.testing.assert_close(a.example.seen, b.example.seen)


def test_a_layer_that_is_not_there_has_no_verdict(checked, own):
    assert checked("x = 3\n") == (None, "")
    assert checked("x = 3\n", replace(own, path=None)) == (None, "")


def test_only_layers_are_checked_here(own):
    values = {"exercise": str(own.path), "part": 0, "source": "", "file": "", "seed": 0}
    with pytest.raises(TypeError, match="part 0 is no Layer"):
        drive_layer(ModuleType("answer"), values)
    tensors, written = drive_layer(ModuleType("answer"), {**values, "part": 1})
    assert read_verdicts(written, tensors) == []
