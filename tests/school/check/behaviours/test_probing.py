import torch

from regard.school.check.behaviours.probing import Probe, call_arguments, close, text
from regard.school.check.compare.attempts import first_attempt
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.learner import OFFERS, Learner, subject_of


def test_calls_with_other_texts_are_what_the_formula_gives_for_them():
    result = first_attempt(LocalSubject(Learner), Request())
    probe = Probe(result)
    x = text(result, 5, 3, 7)
    number = probe.add(x)
    assert result.is_formula(probe.run()[number], result.case.__class__(**{**vars(result.case), "x": x}))
    assert probe.failure(number) is None


def test_a_call_that_fails_has_no_output_and_a_reason():
    result = first_attempt(LocalSubject(Learner), Request())
    probe = Probe(result)
    number = probe.add(text(result, 5, 2, 12))  # more than context_length
    assert probe.run()[number] is None
    assert "must match" in probe.failure(number).message


def test_arguments_are_given_by_name(tmp_path):
    result = first_attempt(subject_of(OFFERS, tmp_path), Request())
    probe = Probe(result)
    x, context = text(result, 5, 2, 5), text(result, 6, 2, 8)
    probe.add(x)
    probe.add(x, {"context": context})
    plain, crossed = probe.run()
    assert not close(plain, crossed)
    assert call_arguments(result) == ["x", "context", "key_padding_mask", "need_weights"]


def test_nothing_is_close_to_what_is_missing_or_of_another_shape():
    ones = torch.ones(2, 3)
    assert close(ones, ones + 1e-6)
    assert not close(ones, None)
    assert not close(ones, torch.ones(3))
