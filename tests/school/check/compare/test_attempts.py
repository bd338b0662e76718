from dataclasses import replace

from regard.school.check.compare.attempts import agrees_elsewhere, at_even_sizes, first_attempt, is_confirmed
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.learner import Learner, subject_of, wrong


def test_a_constant_that_differs_elsewhere_is_no_constant(tmp_path):
    first = experiment(LocalSubject(Learner), PROBES[0], 0, Request())
    assert agrees_elsewhere(first, first)
    one, other = (replace(first, case=replace(first.case, factor=factor)) for factor in (0.5, 0.25))
    assert not agrees_elsewhere(one, other)


def test_a_layer_that_insists_on_even_sizes_runs_at_the_next_ones():
    class Even(Learner):
        def __init__(self, d_in, d_out, context_length, dropout, num_heads):
            assert d_out % 2 == 0
            super().__init__(d_in, d_out, context_length, dropout, num_heads)

    subject = LocalSubject(Even)
    assert first_attempt(subject, Request()).sizes == PROBES[1]
    assert at_even_sizes(subject, Request()).is_right
    assert at_even_sizes(LocalSubject(Learner(13, 21, 11, 0.0, 3)), Request()) is None


def test_an_explanation_is_confirmed_at_other_sizes(tmp_path):
    subject = subject_of(wrong("no scale", "loop").source, tmp_path)
    result = first_attempt(subject, Request())
    assert result.names == [("no scale",)]
    assert is_confirmed(subject, Request(), result)
