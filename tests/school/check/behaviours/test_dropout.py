from pathlib import Path

import pytest

from regard.school.check.behaviours.behaviours import BEHAVIOURS
from regard.school.check.behaviours.dropout import dropout_in_training, random_in_eval
from school.check.learner import checked

HELD_OUT = Path(__file__).parents[1] / "held_out"


@pytest.mark.parametrize(
    ("file", "name", "code"),
    [
        ("dropout_unused", "dropout never active", "context = (weights @ v).transpose(1, 2)"),
        ("dropout_result_lost", "dropout never active", "self.drop(w)"),
        ("functional_dropout", "dropout active in eval", "att = F.dropout(F.softmax(att, dim=-1), p=self.dropout)"),
        ("dropout_on_values", "dropout on the wrong tensor", "v = self.dropout(v)"),
    ],
)
def test_dropout_is_told_at_the_line_where_it_acts_or_should(file, name, code, tmp_path):
    (finding,) = checked((HELD_OUT / f"{file}.py").read_text(encoding="utf-8"), tmp_path).mistakes
    assert (finding.name, finding.code) == (name, code)


def test_both_are_behaviours():
    assert {dropout_in_training, random_in_eval} <= set(BEHAVIOURS)
