import pytest

from regard.school.check.behaviours.probe import Situation, line_with
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import Request, experiment
from regard.school.check.learner_code.subject import LocalSubject
from school.check.learner import Learner


@pytest.fixture
def situation():
    subject, request = LocalSubject(Learner), Request()
    return Situation(subject, experiment(subject, PROBES[0], 0, request), request)


def test_a_layer_can_be_called_several_times_and_gives_its_outputs(situation):
    assert situation.is_right
    assert [tuple(one.shape) for one in situation.outputs(situation.run(2))] == [(2, 5, 21)] * 2


def test_with_dropout_the_calls_of_dropout_are_seen(situation):
    assert [one.p for one in situation.with_dropout(1, train=True).dropped] == [0.5]
    assert situation.record().recorded


def test_a_line_is_found_unless_it_is_too_long_to_search():
    assert line_with("a = 1\nself.drop = 2", r"self\.drop") == 2
    assert line_with("self.drop = " + "1" * 1000, r"self\.drop") == 0
