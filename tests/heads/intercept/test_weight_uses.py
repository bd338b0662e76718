"""A cut is whole or refused: weights that are multiplied a second time, in whatever way, are found."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard

B, T, H, D = 2, 7, 3, 5
E = H * D


class Twice(nn.Module):
    """Attention whose context is a function of the weights, the values and a table; `use` names it."""

    num_heads = H

    def __init__(self, use):
        super().__init__()
        torch.manual_seed(3)
        self.use = use
        self.q, self.k, self.v, self.v2, self.o = (nn.Linear(E, E) for _ in range(5))
        self.table = nn.Parameter(torch.randn(T, T, D))

    def forward(self, x):
        q, k, v, v2 = (one(x).unflatten(-1, (H, D)).transpose(1, 2) for one in (self.q, self.k, self.v, self.v2))
        w = (q @ k.mT / D**0.5).softmax(-1)
        return self.o(self.use(w, v, v2, self.table).transpose(1, 2).flatten(2))


def relative(w, r):
    return torch.einsum("bhts,tsd->bhtd", w, r)


SECOND = {
    "two values": (lambda w, v, v2, r: w @ v + w @ v2, "matmul"),
    "relative values after": (lambda w, v, v2, r: w @ v + relative(w, r), "einsum"),
    "relative values before": (lambda w, v, v2, r: relative(w, r) + w @ v, "einsum"),
    "a sum of products": (lambda w, v, v2, r: w @ v + (w[..., None] * r).sum(-2), "mul"),
    "a sum of products before": (lambda w, v, v2, r: (w[..., None] * r).sum(-2) + w @ v, "mul"),
    "a linear map": (lambda w, v, v2, r: w @ v + F.linear(w, r[0].T), "linear"),
    "weights picked out": (lambda w, v, v2, r: w.flip(-1).roll(1, -1) @ v2 + w @ v, "matmul"),
    "a part of them": (lambda w, v, v2, r: w @ v + w[..., :4] @ v2[..., :4, :], "matmul"),
    "their mean": (lambda w, v, v2, r: w @ v + w.mean(1, keepdim=True) @ v2, "matmul"),
    "a number for each query": (lambda w, v, v2, r: w @ v + (w * r[..., 0]).sum(-1, keepdim=True), "add"),
    "the batch": (
        lambda w, v, v2, r: (w.flatten(0, 1).bmm(v.flatten(0, 1)) + w.flatten(0, 1).bmm(v2.flatten(0, 1))).view_as(v),
        "bmm",
    ),
}


@pytest.mark.parametrize("cut", [{"heads": (0, 1)}, {"heads": (0, 1), "edges": [(3, 1)]}, {"edges": [(3, 1)]}])
@pytest.mark.parametrize("name", SECOND)
def test_weights_that_are_multiplied_a_second_time_are_not_cut(name, cut):
    use, function = SECOND[name]
    model, x = Twice(use), torch.randn(B, T, E)
    message = rf"cannot cut the attention in the model itself: its weights are multiplied a second time, by {function},"
    with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, **cut):
        model(x)


def stepped(w, v):
    """The product, with numbers of the weights written into it."""
    context = w @ v
    context[..., 0] = w.amax(-1)
    return context


OTHERS = {
    "a sum, repeated": (lambda w, v: w @ v + (w * w).sum(-1, keepdim=True).repeat(1, 1, 1, D), "join .*, by add,"),
    "expanded before": (lambda w, v: (w * w).sum(-1, keepdim=True).expand_as(v) + w @ v, "join .*, by add,"),
    "in place": (lambda w, v: (w @ v).add_(w[..., :D]), "join .*, by add_,"),
    "beside it": (lambda w, v: torch.cat([(w @ v)[..., 1:], w[..., :1]], -1), "join .*, by cat,"),
    "written into it": (stepped, "join .*, by __setitem__,"),
    "places chosen by weights": (lambda w, v: (w @ v).gather(-1, w[..., :D].argsort(-1)), "join .*, by gather,"),
    "numpy": (lambda w, v: w @ v + torch.from_numpy(w.numpy() @ v.numpy()), "leave torch, by numpy,"),
    "numpy before": (lambda w, v: torch.from_numpy(w.numpy() @ v.numpy()) + w @ v, "leave torch, by numpy,"),
    "a number": (lambda w, v: (w @ v) * w.max().item(), "leave torch, by item,"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_numbers_made_of_weights_that_join_what_a_head_hands_over_make_a_cut_refuse(name):
    use, said = OTHERS[name]
    model, x = Twice(lambda w, v, v2, r: use(w, v)), torch.randn(B, T, E)
    message = f"cannot cut the attention in the model itself: .*its weights {said}"
    with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, (0, 1)):
        model(x)


class TwoCalls(Twice):
    """Attention whose context is a function of queries, keys and two kinds of values."""

    def forward(self, x):
        parts = (one(x).unflatten(-1, (H, D)).transpose(1, 2) for one in (self.q, self.k, self.v, self.v2))
        return self.o(self.use(*parts).transpose(1, 2).flatten(2))


def softmax_attention(q, k, v, **_):
    return (q @ k.mT / D**0.5).softmax(-1) @ v


@pytest.mark.parametrize("attend", [F.scaled_dot_product_attention, softmax_attention])
def test_one_of_two_calls_with_the_same_queries_and_keys_is_not_cut_alone(attend):
    def use(q, k, v, v2):
        return attend(q, k, v) + attend(q, k.clone(), v2)

    model, without, x = TwoCalls(use), TwoCalls(use), torch.randn(B, T, E)
    message = "it attends twice with the same weights, as layers 0 and 1, .*; cut the same in both"
    for heads in ((0, 1), (1, 1), [(0, 1), (1, 2)]):
        with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, heads):
            model(x)
    with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, edges=[(3, 1)], layers=0):
        model(x)
    without.o.weight.data[:, D : 2 * D] = 0
    with torch.no_grad(), regard.cut(model, [(0, 1), (1, 1)]):
        torch.testing.assert_close(model(x), without(x))


def test_two_calls_with_other_masks_are_two_layers():
    attend = F.scaled_dot_product_attention
    kept = torch.tensor([1.0, 0.0, *[1.0] * (H - 2)])[:, None, None]  # without head 1

    def use(q, k, v, v2, first=1.0, second=1.0):
        return first * attend(q, k, v) + second * attend(q, k, v2, is_causal=True)

    model, x = TwoCalls(use), torch.randn(B, T, E)
    for layer, without in ((0, {"first": kept}), (1, {"second": kept})):
        with torch.no_grad(), regard.cut(model, (layer, 1)):
            out = model(x)
        model.use = partial(use, **without)
        with torch.no_grad():
            torch.testing.assert_close(out, model(x))
        model.use = use


def test_a_second_softmax_that_is_not_understood_makes_a_cut_refuse():
    def use(w, v, v2, r):
        return F.scaled_dot_product_attention(v, v2, v) + relative(w, r)

    model = Twice(use)
    message = r"cannot cut the attention in the model itself, as a part of it is not understood: its softmax"
    with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, (0, 1)):
        model(torch.randn(B, T, E))


def test_weights_that_are_only_read_are_cut_as_before():
    read = []

    def use(w, v, v2, r):
        read.extend([w.mean(1), -(w * w.clamp_min(1e-9).log()).sum(-1), torch.stack([w, w]), w.topk(2).values])
        context = w @ v
        read.extend([w.amax(-1), w.detach().clone() / 2])
        return context

    model, x = Twice(use), torch.randn(B, T, E)
    without = Twice(use)
    without.o.weight.data[:, D : 2 * D] = 0
    with torch.no_grad(), regard.cut(model, (0, 1)):
        torch.testing.assert_close(model(x), without(x))


def test_a_head_of_a_loop_over_heads_is_refused():
    model, x = Twice(lambda w, v, v2, r: torch.stack([w[:, h] @ v[:, h] for h in range(H)], 1)), torch.randn(B, T, E)
    with torch.no_grad(), regard.watch(model) as seen:
        model(x)
    assert [len(list(layer)) for layer in seen] == [H]
    message = "cannot cut the attention in the model itself: its heads or texts are computed one after the other"
    for head in range(H):
        with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, (0, head)):
            model(x)


class TwoAttentions(nn.Module):
    """Two attentions of one head, the second with the first keys only, in one module."""

    def __init__(self):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(E, E) for _ in range(6))

    def forward(self, x):
        q, k, v, q2, k2, v2 = (one(x) for one in self.maps)
        return softmax_attention(q, k, v) + softmax_attention(q2, k2[:, :4], v2[:, :4])


@pytest.mark.parametrize("cut", [(0, 0), (1, 0)])
def test_several_attentions_of_one_module_are_cut_apart_or_not_at_all(cut):
    model, x = TwoAttentions(), torch.randn(B, T, E)
    refusal, out = "", None
    with torch.no_grad():
        q, k, v, q2, k2, v2 = (one(x) for one in model.maps)
        try:
            with regard.cut(model, cut):
                out = model(x)
        except ValueError as error:
            refusal = str(error)
    if not refusal:
        whole = softmax_attention(q2, k2[:, :4], v2[:, :4]) if cut == (0, 0) else softmax_attention(q, k, v)
        torch.testing.assert_close(out, whole)
    else:
        assert "it makes several calls, which are layers 0 to 1; cut the same in all of them" in refusal


@torch.no_grad()
def test_the_same_cut_in_all_attentions_of_a_module_is_made():
    model, x = TwoAttentions(), torch.randn(B, T, E)
    with regard.cut(model, [(0, 0), (1, 0)]):
        assert not model(x).any()


@pytest.mark.parametrize("head", [0, 1])
def test_an_edge_of_one_head_of_a_loop_is_refused(head):
    def use(q, k, v, v2):
        return torch.stack([F.scaled_dot_product_attention(q[:, h], k[:, h], v[:, h]) for h in range(H)], 1)

    model, message = TwoCalls(use), "its heads or texts are computed one after the other"
    with torch.no_grad(), pytest.raises(ValueError, match=message), regard.cut(model, (0, head), edges=[(3, 1)]):
        model(torch.randn(B, T, E))


def test_an_edge_of_all_heads_of_a_loop_is_cut_in_one_layer():
    def use(q, k, v, v2):
        return torch.stack([F.scaled_dot_product_attention(q[:, h], k[:, h], v[:, h]) for h in range(H)], 1)

    model, x = TwoCalls(use), torch.randn(B, T, E)
    whole = TwoCalls(lambda q, k, v, v2: F.scaled_dot_product_attention(q, k, v))
    with torch.no_grad(), regard.watch(model) as seen, regard.cut(model, edges=[(3, 1)]):
        out = model(x)
    with torch.no_grad(), regard.cut(whole, edges=[(3, 1)]):
        torch.testing.assert_close(out, whole(x))
    assert len(seen) == 1
    assert not seen[0].weights()[:, :, 3, 1].any()


# texts and heads in one axis


class OneAxis(nn.Module):
    """Attention over (N, T, D) with texts and heads in one axis, in either order; by SDPA or written out."""

    num_heads = H

    def __init__(self, heads_first, sdpa, change=lambda c: c, project=True):
        super().__init__()
        torch.manual_seed(3)
        self.q, self.k, self.v, self.o = (nn.Linear(E, E) for _ in range(4))
        self.heads_first, self.sdpa, self.change, self.project = heads_first, sdpa, change, project

    def split(self, x):
        if self.heads_first:
            return torch.cat(x.split(D, -1), 0)
        return x.unflatten(-1, (H, D)).transpose(1, 2).flatten(0, 1)

    def forward(self, x):
        q, k, v = (self.split(one(x)) for one in (self.q, self.k, self.v))
        context = F.scaled_dot_product_attention(q, k, v) if self.sdpa else (q @ k.mT / D**0.5).softmax(-1) @ v
        if self.heads_first:
            joined = torch.cat(context.split(len(x), 0), -1)
        else:
            joined = context.unflatten(0, (-1, H)).transpose(1, 2).flatten(2)
        return self.o(self.change(joined)) if self.project else joined


@pytest.mark.parametrize("sdpa", [True, False])
@pytest.mark.parametrize("heads_first", [True, False])
@torch.no_grad()
def test_a_head_in_an_axis_with_the_texts_is_cut_where_its_order_is_proven_or_not_at_all(heads_first, sdpa):
    model, without, x = OneAxis(heads_first, sdpa), OneAxis(heads_first, sdpa), torch.randn(B, T, E)
    without.o.weight[:, D : 2 * D] = 0
    out, refusal = None, ""
    try:
        with regard.cut(model, (0, 1)):
            out = model(x)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert heads_first
        assert "cannot cut" in refusal
    else:
        torch.testing.assert_close(out, without(x))


@torch.no_grad()
def test_contexts_that_are_returned_prove_the_order_too():
    model, x = OneAxis(False, False, project=False), torch.randn(B, T, E)
    expected = model(x).clone()
    expected[..., D : 2 * D] = 0
    with regard.cut(model, (0, 1)):
        torch.testing.assert_close(model(x), expected)


@torch.no_grad()
def test_queries_of_a_projection_prove_the_order_whatever_follows():
    model, without = (OneAxis(False, False, change=torch.tanh) for _ in range(2))
    without.o.weight[:, D : 2 * D] = 0
    x = torch.randn(B, T, E)
    with regard.cut(model, (0, 1)):
        torch.testing.assert_close(model(x), without(x))
