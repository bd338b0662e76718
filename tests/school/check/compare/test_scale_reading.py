import pytest
from torch import nn

from regard.school.check.check import check
from school.check.compare.strange_layers import Beta
from school.check.learner import checked, names


class Scaled(Beta):
    """Queries are multiplied by query_multiplier, as the configuration says."""

    def __init__(self, d_model, num_heads, query_multiplier=0.25):
        super().__init__(d_model, num_heads)
        self.query_multiplier = query_multiplier

    def forward(self, x):
        B, T, E = x.shape
        v, q, k = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        y = ((q * self.query_multiplier) @ k.mT).softmax(-1) @ v
        return self.end(y.transpose(1, 2).reshape(B, T, E))


class SmallQueries(nn.Module):
    """No scale: the queries begin smaller."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        nn.init.normal_(self.q.weight, std=(d_model * d_model // num_heads) ** -0.5)
        nn.init.normal_(self.k.weight, std=d_model**-0.5)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("layer", [Scaled, SmallQueries])
def test_another_scale_that_is_a_setting_or_in_the_weights_is_right(layer):
    assert check(layer).is_right


SAYS = '    """As in T5, the scale is folded into the initialisation of q."""\n'
BEGINS = "        nn.init.normal_(self.q.weight, std=(d_model * d_kv) ** -0.5)\n"
T5 = f"""from torch import nn


class Attention(nn.Module):
{SAYS}
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, d_kv = num_heads, d_model // num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
{BEGINS}
    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_no_scale_is_right_only_where_it_is_said_to_be_in_the_weights_and_is(tmp_path):
    assert checked(T5, tmp_path).is_right
    assert names(checked(T5.replace(SAYS, "").replace(BEGINS, ""), tmp_path)) == ["no scale"]
