"""The exercise of these tests, and one warm worker for all of them."""

import pytest

from regard.school.exercises.answer import own_worker
from regard.school.exercises.exercise import load_exercise
from school.exercises.exercises_for_tests import EXERCISE


@pytest.fixture(scope="session")
def exercise(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lessons") / "scale"
    folder.mkdir()
    (folder / "exercise.py").write_text(EXERCISE)
    return load_exercise(folder)


@pytest.fixture(scope="session")
def worker():
    with own_worker() as one:
        yield one
