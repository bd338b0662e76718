import pytest

from regard.school.check.behaviours.probe import Probe
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.learner import Learner


@pytest.fixture
def probe():
    subject, request = LocalSubject(Learner), Request()
    result = experiment(subject, PROBES[0], 0, request)
    return Probe(subject, request, result, result.record(subject))


def test_a_layer_can_be_called_several_times_and_gives_its_outputs(probe):
    assert probe.result.is_right
    assert [tuple(one.shape) for one in probe.outputs(probe.run(2))] == [(2, 5, 21)] * 2


def test_with_dropout_the_calls_of_dropout_are_seen(probe):
    assert [one.p for one in probe.with_dropout(1, train=True).dropped] == [0.5]
    assert probe.seen.with_lines
