"""A report depends on the model and its input: not on what ran before, in this form or another, watched or cut."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, E, H = 2, 5, 12, 3


class Heads(nn.Module):
    """Attention that does not say how many heads it has, of texts · heads in one axis."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(E, E) for _ in range(3))

    def forward(self, queries, keys):
        q, k, v = (
            layer(t).view(len(t), -1, H, E // H).transpose(1, 2).flatten(0, 1)
            for layer, t in ((self.q, queries), (self.k, keys), (self.v, keys))
        )
        out = (q @ k.mT).softmax(-1) @ v
        return out.view(len(queries), H, -1, E // H).transpose(1, 2).flatten(2)


class MixedTokens(nn.Module):
    """Queries are made of all tokens, by a linear layer over tokens."""

    def __init__(self):
        super().__init__()
        self.mixer, self.first, self.second = nn.Linear(T, 2), Heads(), Heads()

    def forward(self, x, flip=False):
        x = x + self.first(x, x.flip(1) if flip else x)
        groups = self.mixer(x[:, :T].transpose(1, 2)).transpose(1, 2)
        return self.second(groups, x)


class Cached(nn.Module):
    """Attention with a cache, which has heads in another place for a single token."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(E, 3 * E)

    def forward(self, x, cache=None):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, H, E // H).permute(2, 0, 3, 1, 4)
        if cache is not None and len(cache):
            k, v = (torch.cat([old, new], 2) for old, new in zip(cache, (k, v), strict=True))
        if cache is not None:
            cache[:] = k, v
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Shared(nn.Module):
    """Two layers of the same weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(E, H, 16, batch_first=True, dropout=0.0)

    def forward(self, x, flip=False):
        x = self.layer(x)
        return self.layer(x.flip(1) if flip else x)


def said(seen):
    return [(layer.name, layer.record.sizes, layer.basis, layer.entropy, layer.self) for layer in seen]


def watched(model, *args, **kwargs):
    with torch.no_grad(), regard.watch(model) as seen:
        model(*args, **kwargs)
    return said(seen)


def other_length(model, x):
    watched(model, torch.randn(B, T + 2, E))


def other_batch(model, x):
    watched(model, torch.randn(T, T, E))


def other_mode(model, x):
    watched(model.eval(), x)
    model.train()


def with_gradients(model, x):
    with regard.watch(model):
        model(x)


def switched(model, x):
    if isinstance(model, Cached):
        watched(model, x, cache=[])
        watched(model, x, cache=[torch.randn(B, H, 4, E // H) for _ in range(2)])
    else:
        watched(model, x, flip=True)


def one_token(model, x):
    if isinstance(model, Cached):
        watched(model, x[:, :1])


def twice(model, x):
    watched(model, x)
    watched(model, x)


def another_model(model, x):
    for kind in (MixedTokens, Cached, Shared):
        watched(kind(), x)


def in_one_block(model, x):
    with torch.no_grad(), regard.watch(model):
        other_length(model, x)
        model(x)


def in_a_larger_model(model, x):
    watched(nn.Sequential(nn.Identity(), model), x)


BEFORE = [
    other_length,
    other_batch,
    other_mode,
    with_gradients,
    switched,
    one_token,
    twice,
    another_model,
    in_one_block,
]


@pytest.mark.parametrize("before", [*BEFORE, in_a_larger_model], ids=lambda one: one.__name__)
@pytest.mark.parametrize("kind", [MixedTokens, Cached, Shared])
def test_a_report_does_not_depend_on_what_ran_before(kind, before):
    torch.manual_seed(0)
    model, x = kind(), torch.randn(B, T, E)
    fresh = watched(copy.deepcopy(model), x)
    before(model, x)
    for mine, right in zip(watched(model, x), fresh, strict=True):
        assert mine[:3] == right[:3]
        torch.testing.assert_close(mine[3:], right[3:], equal_nan=True)


def test_tokens_that_were_mixed_are_not_taken_for_heads():
    for layers in (watched(MixedTokens(), torch.randn(B, T, E)),) * 2:
        assert [sizes for _, sizes, *_ in layers] == [(B, H, T, T), (B, H, 2, T)]
