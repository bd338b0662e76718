"""The tiny course, in a folder of its own for each test, and somebody who has started it."""

import pytest
from tiny_course import write_course

from regard.school.course.courses import read_course
from regard.school.course.learner import start_folder


@pytest.fixture
def course(tmp_path):
    return read_course(write_course(tmp_path / "tiny"))


@pytest.fixture
def learner(course, tmp_path):
    return start_folder(tmp_path / "answers", course)[0]
