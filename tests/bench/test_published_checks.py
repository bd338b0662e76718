"""What published checks accept: every wrong layer beside them and beside ours."""

import pytest

from regard.bench.check_cases import right_layers, wrong_layers
from regard.bench.published_checks import PUBLISHED
from regard.school.check.check import check_subject
from regard.school.check.request import Request
from sampled import quick_every
from school.check.learner import subject_of

WRONG = wrong_layers("published.txt")
ACCEPTED = {"torchcode_gqa": 12, "torchcode_mha": 0, "torchcode_causal": 5, "deepml_94": 5, "deepml_107": 4}


@pytest.mark.parametrize("name", PUBLISHED)
def test_right_layers_pass_the_published_check_and_ours(name, tmp_path):
    subject = subject_of(right_layers()[name], tmp_path)
    assert PUBLISHED[name](subject.target) == ""
    assert check_subject(subject, Request()).findings == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_wrong_layers_that_a_published_check_accepts_are_counted(name, tmp_path):
    answers = [PUBLISHED[name](subject_of(case.source, tmp_path).target) for case in WRONG if case.layer == name]
    assert answers.count("") == ACCEPTED[name]
    assert set(answers) <= {"", "Output does not match reference"}


def test_the_numbers_of_wrong_layers_are_those_of_the_table():
    assert [sum(case.layer == name for case in WRONG) for name in PUBLISHED] == [12, 10, 5, 5, 4]


@pytest.mark.parametrize("case", quick_every(6, WRONG, lambda case: f"{case.names[0]} in {case.layer}"))
def test_ours_accepts_none_of_them_and_names_each(case, tmp_path):
    (finding,) = check_subject(subject_of(case.source, tmp_path), Request()).mistakes
    assert finding.name.startswith(case.names[0])
