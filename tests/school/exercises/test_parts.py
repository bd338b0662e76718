import subprocess
import sys

import pytest

import regard.school.exercises


def test_teachers_import_every_part_from_one_place():
    from regard.school.exercises import Fault, Function, Judged, Layer, Question, Wrong

    names = [one.__name__ for one in (Fault, Function, Judged, Layer, Question, Wrong)]
    assert names == regard.school.exercises.__all__
    assert Question("answer", "b").because == {}
    assert (Layer("attention").causal, Wrong("n", "s").act, Fault("n", "s").why) == (None, None, "")
    assert Judged("f", None, print).runs == 1
    assert Function("f", lambda random: (), max).runs == 3


def test_the_room_has_no_other_names_and_does_not_wait_for_torch():
    with pytest.raises(AttributeError, match=r"module 'regard.school.exercises' has no attribute 'Exam'"):
        getattr(regard.school.exercises, "Exam")  # noqa: B009
    code = "import sys; import regard.school.exercises.unwritten; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
