import pytest
import torch
from torch import nn

from regard.school.check.check import check
from school.check.learner import checked


class Defaults(nn.Module):
    def __init__(self, d_model=16, num_heads=3):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (W(x).view(B, T, self.num_heads, self.head_dim) for W in (self.W_q, self.W_k, self.W_v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        weights = (q @ k.mT / self.head_dim**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Fitting(Defaults):
    def __init__(self, d_model=15, num_heads=3):
        super().__init__(d_model, num_heads)


class Wide(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads, self.dim_head = heads, dim_head
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, heads * dim_head, bias=False) for _ in range(3))
        self.to_out = nn.Linear(self.joined(dim), dim)

    def joined(self, dim):
        return dim

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (W(x).view(B, T, self.heads, -1).transpose(1, 2) for W in (self.to_q, self.to_k, self.to_v))
        weights = (q @ k.mT / self.dim_head**0.5).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class WideRight(Wide):
    def joined(self, dim):
        return self.heads * self.dim_head


class Rotary(Fitting):
    axis = 1

    def rotate(self, t):
        angles = torch.arange(t.shape[self.axis]).to(t)
        angles = angles.view(-1, 1, 1) if self.axis == 1 else angles.view(-1, 1)
        half = t.shape[-1] // 2
        a, b, rest = t[..., :half], t[..., half : 2 * half], t[..., 2 * half :]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (W(x).view(B, T, self.num_heads, -1).transpose(1, 2) for W in (self.W_q, self.W_k, self.W_v))
        weights = (self.rotate(q) @ self.rotate(k).mT / self.head_dim**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class RotaryByToken(Rotary):
    axis = 2


def names(layer):
    return [one.name for one in check(layer).mistakes]


def test_defaults_that_do_not_fit_each_other_are_a_mistake():
    assert names(Defaults) == ["its own defaults do not fit"]
    assert names(Fitting) == []


def test_joined_heads_of_another_width_than_the_model_must_fit_the_output_projection():
    assert names(Wide) == ["head width does not fit"]
    assert names(WideRight) == []


def test_a_rotation_by_the_number_of_the_head_is_no_position():
    assert names(Rotary) == ["rotary positions over the wrong axis"]
    assert names(RotaryByToken) == []


class Window(nn.Module):
    """Attention in a window, with relative position biases."""

    def __init__(self, dim=32, window_size=(4, 4), num_heads=4):
        super().__init__()
        tokens = window_size[0] * window_size[1]
        self.heads, self.qkv, self.proj = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.relative_position_bias = nn.Parameter(torch.randn(num_heads, tokens, tokens))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5 + self.relative_position_bias
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_defaults_for_a_window_of_tokens_fit_where_so_many_are_passed():
    assert names(Window) == []


TWO_WIDTHS = """
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v = nn.Linear(d_in, d_out), nn.Linear(d_in, d_out), nn.Linear(VALUES)
        self.o = nn.Linear(d_out, d_out)
    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.h, -1)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        y = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
        return RETURNS(self.o(y.transpose(1, 2).flatten(2)))
"""


@pytest.mark.parametrize(
    ("values", "returns", "found", "not_checked"),
    [
        ("d_out, d_in", "", ["linear layer of another width"], False),
        ("d_in, d_out", "", [], False),
        ("d_in, d_out", "x + ", [], True),
    ],
)
def test_two_widths_may_differ(values, returns, found, not_checked, tmp_path):
    source = TWO_WIDTHS.replace("VALUES", values).replace("RETURNS", returns)
    verdict = checked(source, tmp_path)
    assert [one.name for one in verdict.mistakes] == found
    assert any(one.startswith("two widths: with d_in other than d_out") for one in verdict.not_checked) == not_checked
