"""Cuts in every kind of attention: regard's layer, torch.nn, softmax and product, FlexAttention, SDPA."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from heads.models import E, Sdpa
from helpers import Textbook
from learners import TRIL, Easy, Fast
from regard.heads.intercept.torch_nn import OPERATORS
from regard.ladder import causal, multi_head, self_attention

pytestmark = [
    pytest.mark.usefixtures("unchanged"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]
B, T, H, D = 2, 7, 3, 4
EVEN = 2  # heads: with an odd number, torch.nn takes no fast path
HIDDEN = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])


def x(seed=0):
    return torch.randn(B, T, E, generator=torch.Generator().manual_seed(seed))


def layer(**options):
    torch.manual_seed(3)
    made = regard.MultiHeadAttention(d_in=E, d_out=E, context_length=16, dropout=0.0, num_heads=H, **options)
    return made.eval()


def multihead(**options):
    torch.manual_seed(3)
    return nn.MultiheadAttention(E, EVEN, batch_first=True, **options).eval()


@pytest.fixture
def fast(monkeypatch):
    """Which operators of the fast path ran."""
    ran = []
    for name in OPERATORS:
        original = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda *a, name=name, original=original, **k: ran.append(name) or original(*a, **k)
        )
    return ran


def without_head(made, head):
    """A copy whose output projection multiplies what this head hands over by 0."""
    copied = copy.deepcopy(made)
    D = E // made.num_heads
    copied.out_proj.weight.data[:, head * D : (head + 1) * D] = 0
    return copied


def hidden_edges(*edges):
    hidden = torch.zeros(T, T, dtype=torch.bool)
    for query, key in edges:
        hidden[query, key] = True
    return hidden


# regard's own layer


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 1}, {"window": 3}, {"alibi": True}])
@pytest.mark.parametrize("mask", [None, torch.tensor([7, 4])])
def test_a_head_of_our_layer_is_cut_on_every_route(options, mask):
    made = layer(**options)
    with regard.cut(made, (0, 1)):
        out = made(x(), mask=mask)
    torch.testing.assert_close(out, without_head(made, 1)(x(), mask=mask))


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 1}, {"window": 3}, {"alibi": True}])
def test_an_edge_of_our_layer_is_cut_on_every_route(options):
    made, edges = layer(**options), [(4, 3), (6, 6), (0, 0)]
    with regard.cut(made, edges=edges):
        out = made(x())
        again, weights = made(x(), return_weights=True)
    torch.testing.assert_close(out, made(x(), mask=regard.dense(~hidden_edges(*edges))))
    torch.testing.assert_close(again, out)
    assert not weights[:, :, [4, 6, 0], [3, 6, 0]].any()
    torch.testing.assert_close(weights.sum(-1)[:, :, 1:], torch.ones(B, H, T - 1))
    assert not weights[:, :, 0].any()  # its only key is gone


def test_edges_of_chosen_heads_leave_the_other_heads_alone():
    made = layer()
    with regard.watch(made) as whole:
        made(x())
    with regard.cut(made, [(0, 0), (0, 2)], edges=[(5, 1)]), regard.watch(made) as seen:
        made(x())
    assert not seen[0].weights(rows=5)[:, [0, 2], 0, 1].any()
    assert torch.equal(seen[0, 1].weights(), whole[0, 1].weights())


def test_a_trace_shows_what_a_cut_leaves():
    made = layer()
    with regard.cut(made, (0, 1)):
        trace = regard.trace(made, x())
        out = made(x())
    assert not trace["cut"][:, 1].any()
    torch.testing.assert_close(trace["out"], out)


# torch.nn


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}])
@torch.no_grad()
def test_multihead_attention_of_torch_is_cut_also_where_it_would_take_its_fast_path(options, need_weights, fast):
    made, same = multihead(**options), [x()] * 3
    before, _ = made(*same, need_weights=need_weights)
    assert fast == ([] if options else ["_native_multi_head_attention"])
    fast.clear()
    with regard.cut(made, (0, 1)):
        out, _ = made(*same, need_weights=need_weights)
    assert not fast
    torch.testing.assert_close(out, without_head(made, 1)(*same)[0])
    with regard.cut(made, edges=[(3, 1)]):
        out, _ = made(*same, need_weights=need_weights)
    torch.testing.assert_close(out, made(*same, attn_mask=hidden_edges((3, 1)))[0])
    assert torch.equal(made(*same, need_weights=need_weights)[0], before)


@pytest.mark.parametrize("padding", [None, HIDDEN])
@pytest.mark.parametrize("norm_first", [False, True])
@torch.no_grad()
def test_an_encoder_of_torch_is_cut_and_takes_its_fast_path_again_afterwards(padding, norm_first, fast):
    torch.manual_seed(3)
    one = nn.TransformerEncoderLayer(E, EVEN, 17, batch_first=True, norm_first=norm_first)
    made = nn.TransformerEncoder(one, 2).eval()
    real = slice(None) if padding is None else ~padding
    before = made(x(), src_key_padding_mask=padding)
    assert fast
    expected = copy.deepcopy(made)
    expected.layers[1].self_attn = without_head(made.layers[1].self_attn, 1)
    fast.clear()
    with regard.cut(made, (1, 1)):
        out = made(x(), src_key_padding_mask=padding)
    assert not fast
    torch.testing.assert_close(out[real], expected(x(), src_key_padding_mask=padding)[real])
    with regard.cut(made, edges=[(3, 1)]):
        out = made(x(), src_key_padding_mask=padding)
    torch.testing.assert_close(out[real], made(x(), mask=hidden_edges((3, 1)), src_key_padding_mask=padding)[real])
    assert torch.equal(made(x(), src_key_padding_mask=padding), before)


@torch.no_grad()
def test_in_float64_a_head_of_torch_is_cut_exactly():
    made = multihead().double()
    with regard.cut(made, (0, 1)):
        out, _ = made(*[x().double()] * 3)
    q, k, v = F.linear(x().double(), made.in_proj_weight, made.in_proj_bias).unflatten(-1, (3, EVEN, -1)).unbind(2)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    context = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    context[:, 1] = 0
    expected = made.out_proj(context.transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


# learners' layers, by softmax and product

LEARNERS = {
    "textbook": lambda: Textbook(E, E, 11, 0.0, 3),
    "easy": lambda: Easy(E, 3),
    "fast": lambda: Fast(E, 3),
    "ladder": lambda: multi_head.MultiHeadAttention(E, E, 11, 0.0, 3),
    "causal": lambda: causal.CausalAttention(E, 5, 11, 0.0),
    "self": lambda: self_attention.SelfAttention(E, 5),
}


@pytest.mark.parametrize("name", LEARNERS)
@torch.no_grad()
def test_values_of_the_same_run_change_nothing_and_zeros_are_seen(name):
    made = LEARNERS[name]()
    inputs = (x(), TRIL) if name == "fast" else (x(),)
    heads = [(0, head) for head in range(1 if name in ("causal", "self") else 3)]
    with regard.watch(made, values=True) as seen:
        before = made(*inputs)
    with regard.cut(made, heads, to=seen):
        torch.testing.assert_close(made(*inputs), before)
    with regard.cut(made, heads), regard.watch(made, values=True) as cut:
        out = made(*inputs)
    assert not cut[0].context.any()
    assert torch.equal(out, out[:1, :1].expand_as(out))  # nothing but a bias is left
    assert torch.equal(cut[0].weights(), seen[0].weights())  # a head that is cut keeps its weights


class Written(nn.Module):
    """Attention in any layout, over q = k = v of (B, H, T, D)."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, q):
        return self.attention(q)


def scores(q):
    return q @ q.mT / D**0.5


LAYOUTS = {
    "product": lambda q: scores(q).softmax(-1) @ q,
    "transposed": lambda q: (q.mT @ scores(q).softmax(-1).mT).mT,
    "heads in the batch": lambda q: torch.bmm(scores(q).flatten(0, 1).softmax(-1), q.flatten(0, 1)).view(q.shape),
    "viewed after the softmax": lambda q: torch.bmm(scores(q).softmax(-1).flatten(0, 1), q.flatten(0, 1)).view(q.shape),
    "heads permuted": lambda q: (scores(q).softmax(-1).transpose(0, 1) @ q.transpose(0, 1)).transpose(0, 1),
    "einsum": lambda q: torch.einsum("bhts,bhsd->bthd", scores(q).softmax(-1), q).transpose(1, 2),
    "einsum with an ellipsis": lambda q: torch.einsum("...ts,...sd->...td", scores(q).softmax(-1), q),
    "baddbmm": lambda q: torch.baddbmm(
        q.new_zeros(()), scores(q).softmax(-1).flatten(0, 1), q.flatten(0, 1), beta=0
    ).view(q.shape),
    "into a buffer": lambda q: torch.matmul(scores(q).softmax(-1), q, out=torch.empty_like(q)),
    "a sink": lambda q: torch.cat([scores(q), q.new_ones(*q.shape[:3], 1)], -1).softmax(-1)[..., :-1] @ q,
    "cleaned": lambda q: scores(q).softmax(-1).nan_to_num(0.0).masked_fill(torch.eye(T).bool(), 0.0) @ q,
}


def expected_context(name, q, edges=()):
    written = scores(q).clone()
    for query, key in edges:
        written[:, :, query, key] = -torch.inf
    if name == "a sink":
        weights = torch.cat([written, q.new_ones(*q.shape[:3], 1)], -1).softmax(-1)[..., :-1]
    else:
        weights = written.softmax(-1)
    if name == "cleaned":
        weights = weights.masked_fill(torch.eye(T).bool(), 0.0)
    return weights @ q


@pytest.mark.parametrize("name", LAYOUTS)
@torch.no_grad()
def test_a_product_of_weights_and_values_is_cut_in_any_layout(name):
    q, made = torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(5)), Written(LAYOUTS[name])
    expected = expected_context(name, q)
    torch.testing.assert_close(made(q), expected)
    expected[:, 1] = 0
    if name == "heads in the batch":  # of queries that no projection made, the order of texts and heads is not known
        with pytest.raises(ValueError, match="where its heads are is assumed"), regard.cut(made, (0, 1)):
            made(q)
    else:
        with regard.cut(made, (0, 1)):
            torch.testing.assert_close(made(q), expected)
    with regard.cut(made, edges=[(3, 1), (6, 2)]):
        torch.testing.assert_close(made(q), expected_context(name, q, [(3, 1), (6, 2)]))


REFUSED = {
    "two softmaxes": (
        lambda q: (scores(q).softmax(-1) - scores(2 * q).softmax(-1)) @ q,
        "cannot cut the attention in the model itself: its weights are the sum or difference of two softmaxes",
    ),
    "scaled": (
        lambda q: (scores(q).softmax(-1) * 0.5) @ q,
        "cannot cut the attention in the model itself: its weights are scaled after the softmax",
    ),
    "written over": (
        lambda q: (lambda s: (s.softmax(-1), s.zero_())[0] @ q)(scores(q)),
        "cannot cut the attention in the model itself: its scores are written over",
    ),
    "added": (
        lambda q: torch.baddbmm(q.flatten(0, 1), scores(q).softmax(-1).flatten(0, 1), q.flatten(0, 1)),
        "cannot cut the attention in the model itself: baddbmm adds another tensor",
    ),
    "summed": (
        lambda q: torch.einsum("bhts,bhsd->btd", scores(q).softmax(-1), q),
        "cannot cut the attention in the model itself: its product sums over heads or queries",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cut_is_refused_with_the_reason(name):
    attention, message = REFUSED[name]
    made = Written(attention)
    with pytest.raises(ValueError, match=message), regard.cut(made, edges=[(3, 1)]):
        made(torch.randn(B, H, T, D))


# FlexAttention


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("score_mod", [None, lambda score, b, h, i, j: score + 0.1 * (i - j)])
def test_flex_attention_is_cut(score_mod):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q = torch.randn(B, H, T, D)
    made = Written(lambda q: flex.flex_attention(q, q, q, score_mod=score_mod))
    written = scores(q)
    if score_mod is not None:
        written = written + 0.1 * (torch.arange(T)[:, None] - torch.arange(T))
    expected = written.softmax(-1) @ q
    expected[:, 2] = 0
    with regard.cut(made, (0, 2)):
        torch.testing.assert_close(made(q), expected)
    written[:, :, 3, 1] = -torch.inf
    with regard.cut(made, edges=[(3, 1)]), regard.watch(made) as seen:
        torch.testing.assert_close(made(q), written.softmax(-1) @ q)
    torch.testing.assert_close(seen[0].weights(), written.softmax(-1))


# SDPA


@pytest.mark.parametrize("shape", [(T, D), (B, T, D), (B, H, T, D), (2, 1, H, T, D)])
def test_sdpa_is_cut_in_every_shape(shape):
    q, made = torch.randn(shape), Sdpa()
    made.num_heads = heads = H if len(shape) > 3 else 1
    every = [(0, head) for head in range(heads)]
    if len(shape) == 5:  # of queries that no projection made, the axis of heads is known by its size alone
        with pytest.raises(ValueError, match="where its heads are is assumed"), regard.cut(made, every):
            made(q, q)
    else:
        with regard.cut(made, every, to=torch.ones(D)):
            assert torch.equal(made(q, q), torch.ones(shape))
    with regard.cut(made, edges=[(3, 1)]):
        out = made(q, q)
    torch.testing.assert_close(out, made(q, q, attn_mask=~hidden_edges((3, 1))))


def test_strides_stay_as_the_kernel_made_them():
    q = torch.randn(B, T, H, D).transpose(1, 2)
    strides = F.scaled_dot_product_attention(q, q, q).stride()
    for cut in ({"heads": (0, 1)}, {"heads": (0, 1), "to": "mean"}, {"edges": [(3, 1)]}):
        made = Sdpa()
        with regard.cut(made, **cut):
            assert made(q, q).stride() == strides


def test_nested_tensors_are_refused():
    parts = [torch.randn(H, n, D) for n in (7, 4)]
    q = torch.nested.nested_tensor(parts)
    made = Sdpa()
    message = r"its texts are nested tensors, which cannot be cut; pad them"
    with pytest.raises(ValueError, match=message), regard.cut(made, (0, 1)):
        made(q, q)
