"""Attention that a model computes with a softmax and a product, and softmaxes that are not attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from heads.models import assert_weights, calls, watched
from helpers import Textbook
from learners import TRIL, Assignment, CausalAttention, Easy, Fast, SelfAttention
from regard.ladder import causal, multi_head, self_attention

x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))


def scores_of(layer, heads, names=("W_query", "W_key"), given=x):
    q, k = (getattr(layer, name)(given).unflatten(-1, (heads, -1)).transpose(1, 2) for name in names)
    return q @ k.mT / q.shape[-1] ** 0.5


def causal_weights(layer, heads, names=("W_query", "W_key")):
    return scores_of(layer, heads, names).masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf).softmax(-1)


@pytest.mark.parametrize("training", [False, True])
def test_learners_layers_are_seen_before_dropout(training):
    layers = {
        Textbook(12, 12, 11, 0.3, 3): lambda m: causal_weights(m, 3),
        SelfAttention(12, 5): lambda m: scores_of(m, 1).softmax(-1),
        CausalAttention(12, 5): lambda m: causal_weights(m, 1),
        Easy(12, 3): lambda m: scores_of(m, 3, ("q_linear", "k_linear")).softmax(-1),
        multi_head.MultiHeadAttention(12, 12, 11, 0.3, 3): lambda m: causal_weights(m, 3),
        causal.CausalAttention(12, 5, 11, 0.3): lambda m: causal_weights(m, 1),
        self_attention.SelfAttention(12, 5): lambda m: scores_of(m, 1).softmax(-1),
    }
    for layer, expected in layers.items():
        layer.train(training)
        torch.manual_seed(2)
        unwatched = layer(x)
        torch.manual_seed(2)
        out, reports = watched(layer, x)
        assert torch.equal(out, unwatched)
        (call,) = calls(reports)
        assert_weights(call, expected(layer))


def test_masks_that_are_compared_with_zero_are_seen():
    fast, assignment = Fast(12, 3), Assignment(12, 3)
    _, reports = watched(fast, x, TRIL)
    q, k, _ = (t.unflatten(-1, (3, 4)).transpose(1, 2) for t in fast.qkv_proj(x).chunk(3, -1))
    hidden = torch.ones(7, 7).triu(1).bool()
    torch.testing.assert_close(
        calls(reports)[0].attention.weights, (q @ k.mT / 2).masked_fill(hidden, -torch.inf).softmax(-1)
    )
    (_, attention), reports = watched(assignment, x, TRIL)
    assert torch.equal(calls(reports)[0].attention.weights, attention)
    torch.testing.assert_close(attention, causal_weights(assignment, 3, ("W_q", "W_k")))


def test_heads_in_a_list_are_reported_one_by_one():
    wrapper = multi_head.MultiHeadAttentionWrapper(12, 5, 11, 0.0, 3)
    _, reports = watched(wrapper, x)
    assert [call.origin.module for call in calls(reports)] == ["heads.0", "heads.1", "heads.2"]
    for call, head in zip(calls(reports), wrapper.heads, strict=True):
        assert_weights(call, causal_weights(head, 1))


class Model(nn.Module):
    """A model that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def through_views(w, v):
    return torch.bmm(F.dropout(w, 0.5).flatten(0, 1).contiguous().to(v.dtype), v.flatten(0, 1)).view_as(v)


AFTER = {
    "matmul": lambda w, v: torch.matmul(w, v),
    "dropout in place": lambda w, v: F.dropout(w, 0.5, True, True) @ v,
    "views": through_views,
    "einsum": lambda w, v: torch.einsum("b h i j, b h j d -> b h i d", w, v),
    "einsum, turned round": lambda w, v: torch.einsum("bhjd,bhij->bihd", v, w),
    "permuted heads": lambda w, v: w.permute(1, 0, 2, 3) @ v.transpose(0, 1),
    "cast": lambda w, v: w.half().float().nan_to_num() @ v,
    "turned round": lambda w, v: v.mT @ w.mT,
    "turned round by hand": lambda w, v: torch.bmm(v.flatten(0, 1).mT, w.flatten(0, 1).permute(0, 2, 1)),
    "turned twice": lambda w, v: w.transpose(2, 3).contiguous().mT @ v,
    "turned round in an einsum": lambda w, v: torch.einsum("bhji,bhjd->bhid", w.mT, v),
    "einsum without an arrow": lambda w, v: torch.einsum("bhij,bhjd", w, v),
    "baddbmm": lambda w, v: torch.baddbmm(v.flatten(0, 1), w.flatten(0, 1), v.flatten(0, 1)),
}
SOFTMAX = {
    "method": lambda s: s.softmax(-1),
    "function": lambda s: F.softmax(s, dim=3),
    "torch": lambda s: torch.softmax(s, -1, dtype=torch.float32),
    "special": lambda s: torch.special.softmax(s, dim=-1),
    "module": lambda s: nn.Softmax(-1)(s),
    "axis": lambda s: s.softmax(axis=-1),
    "axis of a function": lambda s: torch.softmax(s, axis=3),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("softmax", SOFTMAX)
def test_softmax_followed_by_a_product_is_attention(softmax, after):
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    model = Model(lambda q, k, v: AFTER[after](SOFTMAX[softmax](q @ k.mT), v))
    torch.manual_seed(4)
    unwatched = model(q, k, v)
    torch.manual_seed(4)
    out, reports = watched(model, q, k, v)
    assert torch.equal(out, unwatched)
    (call,) = calls(reports)
    assert torch.equal(call.attention.weights, (q @ k.mT).softmax(-1))


FUTURE = torch.ones(5, 5).triu(1).bool()
HEAD_MASK = torch.tensor([1.0, 0.0, 1.0]).view(1, 3, 1, 1)


def in_place(w):
    w *= 2
    w.masked_fill_(w < 0.3, 0)
    return w


def written_into(w):
    w[..., FUTURE] = 0
    return w


def written_over(w):
    w.pow_(2)  # not followed
    return w


def renormalised(w):
    return w / w.sum(-1, keepdim=True)


def viewed(w):
    return renormalised(w.flatten(0, 1).masked_fill(FUTURE, 0)).view(2, 3, 5, 5)


def permuted(w):
    return renormalised(w.permute(1, 2, 0, 3) * ~FUTURE[:, None]).permute(2, 0, 1, 3)


CHANGES = {
    "masked": lambda w: w.masked_fill(FUTURE, 0),
    "masked and renormalised": lambda w: renormalised(w.masked_fill(FUTURE, 0)),
    "multiplied by a mask": lambda w: renormalised(~FUTURE * w),
    "divided in place": lambda w: w.mul_(~FUTURE).div_((w * ~FUTURE).sum(-1, keepdim=True)),
    "normalised": lambda w: F.normalize(w * ~FUTURE, p=1, dim=-1),
    "where": lambda w: torch.where(FUTURE, 0.0, w),
    "lower triangle": lambda w: renormalised(w.tril()),
    "lower triangle in place": lambda w: renormalised(w.tril_()),
    "a little more": lambda w: w + 1e-2,
    "a little more, in place": lambda w: 1e-2 + w.add_(torch.tensor(1e-2)),
    "a little less": lambda w: (w - 1e-2).clamp(min=0),
    "clamped": lambda w: w.clamp_(1e-2, 0.5),
    "changed while turned": lambda w: renormalised(w.mT.masked_fill(FUTURE.mT, 0).mT),
    "head mask": lambda w: w * HEAD_MASK,
    "in place": in_place,
    "written into": written_into,
    "written over": written_over,
    "viewed": viewed,
    "permuted": permuted,
    "copied and written into": lambda w: written_into(w.double().clone()).float(),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_weights_changed_after_softmax_are_those_that_multiply_the_values(change, training):
    q, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 7)
    model = Model(lambda q, v: F.dropout(CHANGES[change]((q @ q.mT).softmax(-1)), 0.5, training) @ v)
    torch.manual_seed(4)
    unwatched = model(q, v)
    torch.manual_seed(4)
    out, reports = watched(model, q, v)
    assert torch.equal(out, unwatched)
    (call,) = calls(reports)
    expected = CHANGES[change]((q @ q.mT).softmax(-1))
    torch.testing.assert_close(call.attention.weights, expected, rtol=0, atol=0, check_dtype=False)
    if not training:
        torch.testing.assert_close(call.attention.weights.float() @ v, out)


def test_heads_folded_into_the_batch_are_masked_after_softmax():
    def fold(x):
        q = x.unflatten(-1, (3, 4)).transpose(1, 2).flatten(0, 1)
        return renormalised((q @ q.mT).softmax(-1).masked_fill(FUTURE, 0)) @ q

    q = torch.randn(2, 5, 12)
    heads = q.unflatten(-1, (3, 4)).transpose(1, 2)
    expected = (heads @ heads.mT).masked_fill(FUTURE, -torch.inf).softmax(-1)
    torch.testing.assert_close(calls(watched(Model(fold), q)[1])[0].attention.weights, expected)


def test_statistics_are_of_the_weights_after_the_mask():
    q = torch.randn(2, 3, 5, 8)
    model = Model(lambda q: renormalised((q @ q.mT).softmax(-1).masked_fill(FUTURE, 0)) @ q)
    with regard.watch(model) as seen:
        model(q)
    p = (q @ q.mT).masked_fill(FUTURE, -torch.inf).softmax(-1)
    torch.testing.assert_close(seen[0].weights(), p)
    torch.testing.assert_close(seen[0].entropy, -torch.xlogy(p, p).sum(-1))
    torch.testing.assert_close(seen[0].received, p.sum(2))


PARTS = {
    "split": lambda w: w.split(1, dim=1),
    "chunk": lambda w: w.chunk(3, 1),
    "unbind": lambda w: w.unbind(1),
    "unbind by a loop": lambda w: list(w.transpose(0, 1)),
    "viewed and cut": lambda w: w.view(2, 3, 1, 5, 5).unbind(1),
}


@pytest.mark.parametrize("cut", PARTS)
def test_heads_that_part_after_softmax_are_reported_one_by_one(cut):
    q = torch.randn(2, 3, 5, 8)
    model = Model(lambda q: [part @ torch.ones_like(part) for part in PARTS[cut]((q @ q.mT).softmax(-1))])
    reports = calls(watched(model, q)[1])
    assert torch.equal(torch.cat([call.attention.weights for call in reports], 1), (q @ q.mT).softmax(-1))
    assert len(reports) == 3


def test_a_sink_that_is_split_off_is_none_of_the_weights():
    q = torch.randn(2, 3, 5, 8)
    scores = torch.cat([q @ q.mT, torch.zeros(2, 3, 5, 1)], -1)
    model = Model(lambda scores, v: F.dropout(scores.softmax(-1), 0.5).split([5, 1], -1)[0] @ v)
    (call,) = calls(watched(model, scores, q)[1])
    assert torch.equal(call.attention.weights, scores.softmax(-1)[..., :-1])


def test_one_query_a_text_is_seen_as_that():
    scores, v = torch.randn(3, 7), torch.randn(3, 7, 11)
    (call,) = calls(watched(Model(lambda s, v: torch.bmm(s.softmax(1).unsqueeze(1), v)), scores, v)[1])
    assert torch.equal(call.attention.weights, scores.softmax(-1)[:, None, None])


def test_the_difference_of_two_softmaxes_is_not_reported_and_this_is_said():
    q = torch.randn(2, 3, 5, 8)
    model = Model(lambda q: ((q @ q.mT).softmax(-1) - 0.3 * (q @ q.mT / 2).softmax(-1)) @ q)
    with (
        pytest.warns(UserWarning, match="the attention in the model itself is not reported: .* two softmaxes"),
        pytest.raises(ValueError, match="Model made no attention that can be seen"),
    ):
        watched(model, q)


AFTER_DROPOUT = {
    "head mask": lambda w: w * HEAD_MASK,
    "masked in place": lambda w: w.masked_fill_(FUTURE, 0),
    "masked by names": lambda w: torch.mul(input=w, other=~FUTURE),
    "written into": written_into,
}


@pytest.mark.parametrize("change", AFTER_DROPOUT)
def test_weights_masked_after_dropout_are_those_without_dropout(change):
    q = torch.randn(2, 3, 5, 8)
    model = Model(lambda q: AFTER_DROPOUT[change](F.dropout((q @ q.mT).softmax(-1), 0.5)) @ q)
    (call,) = calls(watched(model, q)[1])
    assert torch.equal(call.attention.weights, AFTER_DROPOUT[change]((q @ q.mT).softmax(-1)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (renormalised, "after dropout its weights go through .*div.*; put dropout last"),
        (
            lambda w: torch.ops.aten.div.Tensor(w, w.sum(-1, keepdim=True)),
            "after dropout its weights go through div; put dropout last",
        ),
        (lambda w: torch.div(w, other=w.sum(-1, keepdim=True)), "after dropout its weights go through div; put"),
        (lambda w: w.mT.masked_fill(FUTURE.mT, 0).mT, "after dropout its weights go through masked_fill; put"),
        (written_over, "after dropout its weights are written over; put dropout last"),
    ],
)
def test_weights_that_cannot_be_followed_are_not_reported_and_this_is_said(change, says):
    class Layer(nn.Module):
        def forward(self, q):
            return change(F.dropout((q @ q.mT).softmax(-1), 0.5, self.training)) @ q

    model, q = nn.Sequential(Layer()), torch.randn(2, 3, 5, 8)
    with (
        pytest.warns(UserWarning, match=f"the attention in 0 is not reported: {says}"),
        pytest.raises(ValueError, match="Sequential made no attention that can be seen"),
    ):
        watched(model, q)
    (call,) = calls(watched(model.eval(), q)[1])
    assert torch.equal(call.attention.weights, change((q @ q.mT).softmax(-1)))


NOT_ATTENTION = {
    "vocabulary": lambda w: w.softmax(-1),
    "mixture of experts": lambda w: w.softmax(-1).topk(2).values.sum(-1),
    "linear": lambda w: F.linear(w.softmax(-1), torch.ones(3, 7)),
    "learned values": lambda w: w.softmax(-1) @ nn.Parameter(torch.ones(7, 3)),
    "another axis": lambda w: w.softmax(-2) @ w.mT,
    "transposed": lambda w: w.softmax(-1).transpose(-1, -2) @ w,
    "dense experts": lambda w: torch.einsum("bte,bted->btd", w.softmax(-1), w[..., None] * w[:, :, None]),
    "dense experts, implicit": lambda w: torch.einsum("te,ted", w[0].softmax(-1), w[0, ..., None].expand(5, 7, 3)),
    "dense experts by a product": lambda w: w.softmax(-1).unsqueeze(-2) @ w[..., None].expand(2, 5, 7, 3),
    "added to what is no softmax": lambda w: (w + w.softmax(-1)) @ w.mT,
    "right operand": lambda w: w.mT @ w.softmax(-1),
}


@pytest.mark.parametrize("kind", NOT_ATTENTION)
def test_other_softmaxes_are_not_attention(kind):
    with pytest.raises(ValueError, match="Model made no attention that can be seen"):
        watched(Model(NOT_ATTENTION[kind]), torch.randn(2, 5, 7))


def test_a_sink_beside_the_keys_is_cut_off_as_the_model_does():
    def with_sink(q, v):
        scores = torch.cat([q @ q.mT, torch.zeros(2, 3, 5, 1)], -1)
        return F.dropout(scores.softmax(-1)[..., :-1], 0.0) @ v

    q = torch.randn(2, 3, 5, 8)
    (call,) = calls(watched(Model(with_sink), q, q)[1])
    assert torch.equal(call.attention.weights, torch.cat([q @ q.mT, torch.zeros(2, 3, 5, 1)], -1).softmax(-1)[..., :-1])


def test_a_softmax_that_is_not_attention_is_freed():
    import gc
    import weakref

    alive = []

    def leaky(x):
        alive.append(weakref.ref(x.softmax(-1).untyped_storage()))
        dead = [ref() is None for ref in alive]
        return x.softmax(-1) @ x, dead

    x = torch.randn(7, 7)
    (_, dead), reports = watched(Model(leaky), x)
    gc.collect()
    assert dead == [True]
    assert len(reports) == 1


@pytest.mark.parametrize("how", [{}, {"window": 3}, {"alibi": True}, {"num_kv_heads": 1}, {"causal": False}], ids=str)
def test_our_own_layer_is_seen_once_and_by_its_rule(how):
    layer = regard.MultiHeadAttention(12, 12, 16, 0.0, 3, **how).eval()
    unwatched, expected = layer(x), layer(x, return_weights=True)[1]
    out, reports = watched(layer, x)
    assert torch.equal(out, unwatched)
    (call,) = calls(reports)
    assert_weights(call, expected)
    (_, weights), reports = watched(layer, x, return_weights=True)
    assert torch.equal(weights, expected)
    assert_weights(calls(reports)[0], expected)
    assert len(reports) == 1


def test_our_own_layer_with_padding_and_a_cache():
    layer = regard.MultiHeadAttention(12, 12, 16, 0.0, 3).eval()
    keep = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    expected = layer(x, mask=regard.padding(keep), return_weights=True)[1]
    _, reports = watched(layer, x, mask=regard.padding(keep), padding=keep)
    assert torch.equal(calls(reports)[0].origin.real, keep)
    assert_weights(calls(reports)[0], expected)
