import pytest
import torch
from torch import nn

import regard
from regard.school.check.compare.input_norm import find_norm
from school.check.learner import Learner


class Normed(Learner):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__(d_in, d_out, context_length, dropout, num_heads)
        self.norm = nn.LayerNorm(d_in)

    def forward(self, x):
        return super().forward(self.norm(x))


class RootMeanSquare(Normed):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__(d_in, d_out, context_length, dropout, num_heads)
        self.norm = nn.RMSNorm(d_in, eps=1e-6)


class WithAWrongScale(Normed):
    def forward(self, x):
        T = x.shape[1]
        q, k, v = (
            W(self.norm(x)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for W in (self.W_query, self.W_key, self.W_value)
        )
        scores = (q @ k.mT / self.out_proj.in_features**0.5).masked_fill(self.mask[:T, :T], -torch.inf)
        return self.out_proj((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("layer", [Normed, RootMeanSquare])
def test_a_norm_before_the_projections_is_right_and_noted(layer):
    verdict = regard.check(layer)
    assert verdict.mistakes == []
    assert verdict.notes == ["It normalises x before it projects it."]


def test_a_mistake_behind_a_norm_is_named():
    assert [one.name for one in regard.check(WithAWrongScale).mistakes] == ["scale by √d_model"]


def test_several_norms_are_none_that_could_be_told():
    parameters = [
        {"name": f"{n}.weight", "shape": [13], "owner": "torch.nn.modules.normalization.LayerNorm"} for n in "ab"
    ]
    weights = {p["name"]: torch.ones(13) for p in parameters}
    assert find_norm({"parameters": parameters}, weights, 13) is None
    assert find_norm({"parameters": parameters[:1]}, weights, 13).bias is None
    assert find_norm({"parameters": parameters[:1]}, weights, 11) is None
