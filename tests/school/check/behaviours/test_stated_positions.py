import torch
from torch import nn

from regard.school.check.check import check


class Local(nn.Module):
    """A token sees itself and the `window` - 1 tokens before it."""

    more = 0

    def __init__(self, d_model, num_heads, window):
        super().__init__()
        self.h, self.window = num_heads, window
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def bias(self, back):
        return torch.zeros(self.h, 1, 1)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        i = torch.arange(x.shape[1])
        back = i[:, None] - i
        scores = q @ k.mT / q.shape[-1] ** 0.5 + self.bias(back).to(q)
        scores = scores.masked_fill((back < 0) | (back >= self.window + self.more), -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OneMore(Local):
    """A token sees itself and the `window` - 1 tokens before it."""

    more = 1


class OneLess(Local):
    """The last `window` tokens, including itself: i - window + 1, ..., i."""

    more = -1


class Beside(Local):
    """A token sees itself and the `window` tokens before it."""

    more = 1


class HalfOpen(Local):
    """A token i sees (i - window, i]."""


class Silent(Local):
    """A window over the past."""

    more = 1


class Alibi(Local):
    """Scores are lowered by the distance, as in ALiBi."""

    def bias(self, back):
        slopes = 2.0 ** (-8 * torch.arange(1, self.h + 1) / self.h)
        return -slopes[:, None, None] * back


class Raised(Alibi):
    """Scores are lowered by the distance, as in ALiBi."""

    def bias(self, back):
        return -super().bias(back)


class Learned(Alibi):
    """ALiBi with learned slopes."""

    def __init__(self, d_model, num_heads, window):
        super().__init__(d_model, num_heads, window)
        self.slopes = nn.Parameter(torch.ones(num_heads))

    def bias(self, back):
        return self.slopes[:, None, None] * back


def names(layer):
    return [one.name for one in check(layer).mistakes]


def test_a_window_holds_as_many_tokens_as_the_text_says():
    assert [names(one) for one in (Local, Beside, HalfOpen, Silent)] == [[], [], [], []]
    assert names(OneMore) == names(OneLess) == ["window off by one"]


def test_distance_lowers_a_score_where_the_text_says_so():
    assert names(Alibi) == names(Learned) == []
    assert names(Raised) == ["far keys favoured"]


def alibi_attention(q, k, v):
    """ALiBi: q, k, v (batch, heads, tokens, width)."""
    i = torch.arange(q.shape[2])
    slopes = 2.0 ** (-8 * torch.arange(1, q.shape[1] + 1) / q.shape[1])
    scores = q @ k.mT / q.shape[-1] ** 0.5 + slopes[:, None, None] * (i[:, None] - i)
    return scores.masked_fill(i > i[:, None], -torch.inf).softmax(-1) @ v


def test_a_function_with_positions_is_tried_too():
    assert names(alibi_attention) == ["far keys favoured"]


class NoEnd(Local):
    """Each token sees itself and the `window` - 1 tokens before it."""

    def __init__(self, d_model, num_heads, window=4):
        super().__init__(d_model, num_heads, window)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        i = torch.arange(x.shape[1])
        distance = (i[:, None] - i).abs()
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(distance >= self.window, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def windowed_attention(q, k, v, window):
    """A token sees `window` tokens: itself and the window - 1 before it."""
    i = torch.arange(q.shape[-2])
    back = i[:, None] - i
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill((back < 0) | (back > window), -torch.inf).softmax(-1) @ v


def test_a_window_of_the_tokens_before_ends_at_the_token_itself():
    assert names(NoEnd) == ["window sees the future"]


def test_the_window_of_a_function_is_counted_too():
    assert [one.name for one in check(windowed_attention).mistakes] == ["window off by one"]
