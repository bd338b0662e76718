"""The exercise of these tests, and one warm worker for all of them."""

import pytest

from regard.school.check.learner_code.submission import own_limits
from regard.school.exercises.answer import SECONDS
from regard.school.exercises.exercise import load_exercise
from regard.school.sandbox.protection import Protection
from regard.school.sandbox.worker import Worker
from school.exercises.exercises_for_tests import EXERCISE


@pytest.fixture(scope="session")
def exercise(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lessons") / "scale"
    folder.mkdir()
    (folder / "exercise.py").write_text(EXERCISE)
    return load_exercise(folder)


@pytest.fixture(scope="session")
def worker():
    with Worker(own_limits(SECONDS), Protection.for_own_file(imported=("regard.public",))) as one:
        yield one
