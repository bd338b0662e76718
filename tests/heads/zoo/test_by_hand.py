"""Layers as other libraries write them: what is not understood is named, and what is no attention is not reported."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, H, E = 2, 7, 4, 24


class TalkingHeads(nn.Module):
    """As in timm's CaiT: the heads are mixed before and after the softmax."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.qkv = H, nn.Linear(E, 3 * E)
        self.before, self.after = nn.Linear(H, H), nn.Linear(H, H)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(B, T, 3, H, E // H).permute(2, 0, 3, 1, 4)
        weights = self.before((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        weights = self.after(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return (weights @ v).transpose(1, 2).flatten(2)


class ClassAttention(nn.Module):
    """As in timm's CaiT: one token attends to all."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.q, self.kv = H, nn.Linear(E, E), nn.Linear(E, 2 * E)

    def forward(self, x):
        q = self.q(x[:, 0]).unsqueeze(1).reshape(B, 1, H, E // H).permute(0, 2, 1, 3)
        k, v = self.kv(x).reshape(B, T, 2, H, E // H).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)


class MixtureOfExperts(nn.Module):
    """All tokens in one axis, each with a mixture of the experts' outputs, by bmm."""

    def __init__(self, experts):
        super().__init__()
        self.router, self.experts = nn.Linear(E, experts), nn.Linear(E, experts * E)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        outputs = self.experts(tokens).unflatten(-1, (-1, E))
        return torch.bmm(self.router(tokens).softmax(-1).unsqueeze(1), outputs).view_as(x)


class SoftEmbedding(nn.Module):
    """The mean embedding of a distribution over the first words of a vocabulary."""

    def __init__(self, words):
        super().__init__()
        self.words, self.embedding, self.head = words, nn.Embedding(50, E), nn.Linear(E, words)

    def forward(self, x):
        return self.head(x).softmax(-1) @ self.embedding.weight[: self.words]


class LinearAttention(nn.Module):
    """Softmax over features, of queries and of keys; no token has weights on others."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(E, 3 * E)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(B, T, 3, 2, E // 2).permute(2, 0, 3, 1, 4)
        return (q.softmax(-1) @ (k.softmax(-2).mT @ v)).transpose(1, 2).flatten(2)


class Model(nn.Module):
    """Self-attention, and another layer after it."""

    def __init__(self, layer):
        super().__init__()
        self.attention, self.layer = nn.MultiheadAttention(E, H, batch_first=True), layer

    def forward(self, x):
        return self.layer(x + self.attention(x, x, x, need_weights=False)[0])


def watched_twice(model):
    with regard.watch(model) as seen:
        for _ in range(2):
            model(torch.randn(B, T, E))
    return seen


def test_talking_heads_are_named_in_one_warning():
    model = Model(nn.Sequential(TalkingHeads(), TalkingHeads(), ClassAttention()))
    named = (
        r"the attention in layer\.0–1 is not reported: its softmax, \(2, 4, 7, 7\), goes through linear, which is not"
    )
    with pytest.warns(UserWarning, match=named) as said:
        seen = watched_twice(model)
    assert len(said) == 1
    assert [layer.name for layer in seen.forwards[0]] == ["attention", "layer.2"]
    assert seen.forwards[0]["layer.2"].basis.positions.how.value == "unknown"


@pytest.mark.parametrize(
    "layer",
    [
        *(MixtureOfExperts(experts) for experts in (3, T)),
        *(SoftEmbedding(words) for words in (31, T)),
    ],
    ids=["experts", "as many experts as tokens", "words", "as many words as tokens"],
)
def test_a_softmax_that_is_no_attention_is_not_reported(layer):
    model = Model(layer)
    with regard.watch(model) as seen:
        model(torch.randn(B, T, E))
    assert [one.name for one in seen] == ["attention"]


def test_scores_that_are_no_product_are_marked():
    class Additive(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(E, E), nn.Linear(E, E), nn.Linear(E, 1)

        def forward(self, x):
            scores = self.v(torch.tanh(self.q(x)[:, :, None] + self.k(x)[:, None])).squeeze(-1)
            return scores.softmax(-1) @ x

    with regard.watch(model := Additive()) as seen:
        model(torch.randn(B, T, E))
    said = "weights assumed: these are attention weights; their scores are no product of queries and keys"
    assert seen[0].marks == (said,)


def test_rows_that_do_not_sum_to_one_are_said():
    class Sink(nn.Module):
        num_heads = 1

        def forward(self, x):
            scores = torch.cat([x @ x.mT / 5, x.new_full((B, T, 1), 3.0)], -1)
            return scores.softmax(-1)[..., :-1] @ x

    class Pieces(nn.Module):
        num_heads = 1

        def forward(self, x):
            weights = (x @ x.mT).softmax(-1)
            return weights[..., :3] @ x[:, :3] + weights[..., 3:] @ x[:, 3:]

    with regard.watch(model := Sink()) as seen:
        model(torch.randn(B, T, E))
    (mark,) = seen[0].marks
    assert mark.startswith("weights: rows sum to 0.")
    assert mark.endswith("the rest is on a key that has no value")
    with (
        pytest.warns(
            UserWarning, match="the attention in layer is not reported: only 3 of its 7 columns are multiplied"
        ),
        regard.watch(model := Model(Pieces())) as seen,
    ):
        model(torch.randn(B, T, E))
    assert [one.name for one in seen] == ["attention"]


def test_windows_of_an_image_are_no_heads():
    class Windows(nn.Module):
        """As in timm's Hiera: (B, H, windows, T, D)."""

        def __init__(self, fused):
            super().__init__()
            self.num_heads, self.fused, self.qkv = 2, fused, nn.Linear(E, 3 * E)

        def forward(self, x):
            q, k, v = self.qkv(x).reshape(B, -1, 4, 3, 2, E // 2).permute(3, 0, 4, 2, 1, 5)
            if self.fused:
                return F.scaled_dot_product_attention(q, k, v)
            return (q @ k.mT / (E // 2) ** 0.5).softmax(-1) @ v

    model, x, reports = Windows(fused=True), torch.randn(B, 4 * T, E), []
    for fused in (True, False):
        model.fused = fused
        with regard.watch(model) as seen:
            model(x)
        reports.append(seen[0])
    assert [layer.record.sizes for layer in reports] == [(4 * B, 2, T, T)] * 2
    torch.testing.assert_close(reports[0].weights(), reports[1].weights())
