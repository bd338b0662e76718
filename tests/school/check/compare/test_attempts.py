from dataclasses import replace

import pytest

from regard.school.check.compare.attempts import agrees_elsewhere, at_even_sizes, first_attempt, is_confirmed
from regard.school.check.compare.constructor_arguments import PROBES
from regard.school.check.compare.experiment import experiment
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.learner import LESS, Learner, broken, checked, edited, names, subject_of, wrong


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
    assert is_confirmed(result)


def test_a_constant_scale_is_named_with_its_number(tmp_path):
    (finding,) = checked(edited("loop", "self.d_k**0.5", "8"), tmp_path).mistakes
    assert finding.name == "scale is a constant"
    assert finding.says == "The scores are divided by 8, whatever the size of the heads; here it is √head_dim = √7."


@pytest.mark.parametrize(("layer", "old"), [("textbook", "self.head_dim**0.5"), ("einsum", "math.sqrt(D)")])
def test_a_constant_is_read_from_all_heads_at_once(layer, old, tmp_path):
    (finding,) = checked(edited(layer, old, "math.sqrt(64)"), tmp_path).mistakes
    assert finding.name == "scale is a constant"
    assert "divided by 8," in finding.says


@pytest.mark.slow
def test_a_constant_says_nothing_about_the_future_where_a_mask_is_passed(tmp_path):
    verdict = checked(edited("cross", "math.sqrt(query.size(-1))", "8"), tmp_path)
    assert [one.name for one in verdict.mistakes] == ["scale is a constant"]


@pytest.mark.slow
def test_a_factor_that_changes_with_the_sizes_is_no_constant(tmp_path):
    (finding,) = checked(edited("loop", "self.d_k**0.5", "(2 * self.d_k**0.5)"), tmp_path).mistakes
    assert finding.name == ""


def test_a_mistake_that_runs_at_one_size_only_is_confirmed_with_other_weights(tmp_path):
    verdict = broken(tmp_path, *LESS, "q @ k.mT", "q @ k", "d_model, num_heads,", "d_model=64, num_heads=4,")
    assert names(verdict) == ["keys not transposed"]
