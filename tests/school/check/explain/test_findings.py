import pytest
from torch import nn

import regard
from school.check.learner import Learner


class Whole(Learner):
    def __init__(self, d_in, d_out, context_length, dropout):
        super().__init__(d_in, d_out, context_length, dropout, 1)


class Normed(Learner):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, d_model, 16, 0.0, num_heads)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return super().forward(self.norm(x))


@pytest.mark.parametrize(
    ("target", "task"),
    [
        (Learner, "causal multi-head attention, 3 heads of 7"),
        (Whole, "causal self-attention, one head of 21"),
    ],
)
def test_a_verdict_tells_what_was_compared(target, task):
    assert regard.check(target).task == task


def test_a_norm_of_x_is_noted():
    assert "It normalises x before it projects it." in regard.check(Normed).notes
