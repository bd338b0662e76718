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
    """Softmax of queries over features, and of keys over tokens; no token has weights on others."""

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


class Form(nn.Module):
    """Attention in one of FORMS, which get queries, keys and values, (B, T, H, D) each."""

    def __init__(self, form, declared=True):
        super().__init__()
        self.form, self.qkv, self.out = form, nn.Linear(E, 3 * E), nn.Linear(E, E)
        if declared:
            self.num_heads = H

    def cut(self, x):
        return self.qkv(x).view(B, T, 3, H, E // H).unbind(2)

    def forward(self, x):
        return self.out(self.form(*self.cut(x)).reshape(B, T, E))


def by_product(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


def folded(t, *order):
    return t.permute(*order).reshape(-1, T, E // H)


def by_einsum(scores, axis):
    def form(q, k, v):
        weights = torch.einsum(f"bthd,bshd->{scores}", q, k).softmax(axis)
        return torch.einsum(f"{scores},bshd->bthd", weights, v)

    return form


def groups(q, k, v):
    q = q.unflatten(2, (2, H // 2)).permute(0, 2, 3, 1, 4)
    k, v = (t.unflatten(2, (2, H // 2)).permute(0, 2, 3, 1, 4) for t in (k, v))
    return by_product(q, k, v).permute(0, 3, 1, 2, 4)


def loop_over_heads(q, k, v):
    return torch.stack([by_product(q[:, :, h], k[:, :, h], v[:, :, h]) for h in range(H)], 2)


def loop_over_texts(q, k, v):
    return torch.stack([by_product(*(t[b].transpose(0, 1) for t in (q, k, v))).transpose(0, 1) for b in range(B)])


def keys_first(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return ((k @ q.mT).softmax(-2).mT @ v).transpose(1, 2)


def values_first(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return (v.mT @ (k @ q.mT).softmax(-2)).permute(0, 3, 1, 2)


FORMS = {
    "(B, H, T, S)": lambda q, k, v: by_product(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2),
    "(H, B, T, S)": lambda q, k, v: by_product(*(t.permute(2, 0, 1, 3) for t in (q, k, v))).permute(1, 2, 0, 3),
    "(B · H, T, S)": lambda q, k, v: (
        by_product(*(folded(t, 0, 2, 1, 3) for t in (q, k, v))).view(B, H, T, -1).transpose(1, 2)
    ),
    "(H · B, T, S)": lambda q, k, v: (
        by_product(*(folded(t, 2, 0, 1, 3) for t in (q, k, v))).view(H, B, T, -1).permute(1, 2, 0, 3)
    ),
    "(H · B, T, S) by SDPA": lambda q, k, v: (
        F.scaled_dot_product_attention(*(folded(t, 2, 0, 1, 3) for t in (q, k, v)), scale=1.0)
        .view(H, B, T, -1)
        .permute(1, 2, 0, 3)
    ),
    "(B, T, H, S)": by_einsum("bths", -1),
    "(B, T, S, H)": by_einsum("btsh", 2),
    "(S, B, H, T)": by_einsum("sbht", 0),
    "groups": groups,
    "a loop over heads": loop_over_heads,
    "a loop over texts": loop_over_texts,
    "keys first": keys_first,
    "values first": values_first,
}


@pytest.mark.parametrize("declared", [True, False], ids=["", "not declared"])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_attention_in_whatever_form_is_exact(form, declared):
    model, x = Model(Form(FORMS[form], declared)), torch.randn(B, T, E)
    with regard.watch(model) as seen:
        model(x)
    q, k, _ = (t.transpose(1, 2) for t in model.layer.cut(x + model.attention(x, x, x, need_weights=False)[0]))
    assert [layer.name for layer in seen] == ["attention", "layer"]
    assert seen["layer"].marks == ()
    torch.testing.assert_close(seen["layer"].weights(), (q @ k.mT).softmax(-1))


class Lambda(nn.Module):
    """As in LambdaNetworks: keys are a softmax over tokens, one for each feature."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(E, 5), nn.Linear(E, 5), nn.Linear(E, E)

    def forward(self, x):
        return self.q(x) @ (self.k(x).mT.softmax(-1) @ self.v(x))


class Deformable(nn.Module):
    """As in Deformable DETR: each query has weights for a few values of its own."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.weights, self.values = H, nn.Linear(E, 3 * H), nn.Linear(E, 3 * E)

    def forward(self, x):
        weights = self.weights(x).view(B, T, H, 3).softmax(-1)
        return (weights[..., None] * self.values(x).view(B, T, H, 3, E // H)).sum(-2).flatten(2)


def sigmoid(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return (torch.sigmoid(q @ k.mT) @ v).transpose(1, 2)


def across_heads(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


NAMED = {
    "a lambda layer": (Lambda(), "its softmax is over tokens, of features: it has no queries"),
    "linear attention": (LinearAttention(), "its softmax is over tokens, of features: it has no queries"),
    "deformable attention": (Deformable(), r"its softmax, \(2, 7, 4, 3\), is followed by"),
    "sigmoid attention": (Form(sigmoid), "its scores are multiplied with values without a softmax"),
    "heads that attend to heads": (Form(across_heads), "its weights are between features, not between tokens"),
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_is_no_attention_between_tokens_is_named(kind):
    layer, reason = NAMED[kind]
    named = f"the attention in layer is not reported: {reason}"
    with pytest.warns(UserWarning, match=named), regard.watch(model := Model(layer)) as seen:
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
