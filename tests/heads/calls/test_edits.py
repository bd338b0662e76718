"""What cuts change in one call: edges as a mask, rows computed again, values in place of heads."""

import pytest
import torch

from heads.made_calls import made_call
from helpers import random_qkv
from regard import attend_in_steps, causal
from regard.heads.calls import edits
from regard.heads.calls.basis import Basis, assumed
from regard.heads.calls.edits import CallEdit, LayerEdit, PlacedEdit, Positions, RemovedEdges

B, H, T, S, D = 2, 3, 5, 7, 4


def made(values=None, edges=(), heads=None, **options):
    """A call with values, and the edit of it; edges: (text, row, column)."""
    q, k, v = random_qkv(B=B, H=H, T=T, S=S, D=D)
    call = made_call("h.0", q=q, k=k, v=v, scale=0.5, **options)
    edit = LayerEdit(0, values or {}, (lambda *_: edges) if edges else None, heads)
    return call, CallEdit([PlacedEdit(edit, call, Positions(2, 0))])


def test_removed_edges_are_hidden_in_their_text_and_heads_only():
    mask = RemovedEdges(
        torch.tensor([1, 4]), torch.tensor([0, 6]), torch.tensor([0, 1]), batch=2, heads=torch.tensor([True, False])
    )
    hidden = (~mask.dense(T, S)).nonzero().tolist()
    assert hidden == [[0, 0, 1, 0], [1, 0, 4, 6]]


def test_a_tile_of_removed_edges_is_that_part_of_the_whole():
    mask = RemovedEdges(torch.tensor([1, 4, 4]), torch.tensor([0, 6, 2]))
    rows, cols = torch.tensor([4, 0]), torch.tensor([2, 3, 6])
    assert torch.equal(mask.tile(rows, cols, S - T), mask.dense(T, S)[:, :, rows][..., cols])
    assert mask.tile(rows[:0], cols, S - T).shape == (1, 1, 0, 3)


@pytest.mark.parametrize("weights_at_a_time", [1 << 24, 1])
def test_only_the_rows_of_removed_edges_are_computed_again(weights_at_a_time, monkeypatch):
    monkeypatch.setattr(edits, "_WEIGHTS", weights_at_a_time)
    call, edit = made(edges=[(None, 1, 0), (None, 1, 3), (None, 4, 6)], mask=causal())
    whole = torch.full((B, H, T, D), 7.0, dtype=torch.float64)
    rows = edit.replace_rows(whole, call.attention)
    context, weights = attend_in_steps(*call.attention.qkv, mask=causal() & edit.removed, scale=0.5)
    torch.testing.assert_close(rows[:, :, [1, 4]], context[:, :, [1, 4]])
    assert (rows[:, :, [0, 2, 3]] == 7).all()
    torch.testing.assert_close(
        edit.replace_weights(torch.zeros(B, H, T, S, dtype=torch.float64), call.attention)[:, :, [1, 4]],
        weights[:, :, [1, 4]],
    )


def test_a_bias_and_slopes_count_in_the_rows_that_are_computed_again():
    bias, slopes = torch.randn(B, 1, T, S, dtype=torch.float64), torch.rand(H, dtype=torch.float64)
    bias[..., 5] = torch.finfo(torch.float32).min  # hidden
    call, edit = made(edges=[(None, 2, 4)], bias=bias, alibi=slopes)
    q, k, v = call.attention.qkv
    distance = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs()
    scores = 0.5 * q @ k.mT + bias - slopes[:, None, None] * distance
    scores[:, :, 2, 4] = -torch.inf
    out = edit.replace_rows(torch.zeros(B, H, T, D, dtype=torch.float64), call.attention)
    torch.testing.assert_close(out[:, :, 2], (scores.softmax(-1) @ v)[:, :, 2])


def test_without_edges_nothing_is_computed():
    call, edit = made({1: 0})
    context = torch.randn(B, H, T, D)
    assert edit.removed is None
    assert edit.replace_rows(context, call.attention) is context
    assert edit.replace_weights(context, call.attention) is context


def test_values_take_the_place_of_heads_and_other_heads_stay():
    value = torch.randn(D)
    _, edit = made({0: 0, 2: value})
    context = torch.randn(B, H, T, D, requires_grad=True)
    out = edit.replace_heads(context)
    assert not out[:, 0].any()
    assert torch.equal(out[:, 2], value.expand(B, T, D))
    assert torch.equal(out[:, 1], context[:, 1])
    out.sum().backward()
    assert torch.equal(context.grad.any(-1).any(-1).any(0), torch.tensor([False, True, False]))


def test_a_broken_head_that_is_cut_breaks_nothing():
    _, edit = made({1: 0})
    context = torch.ones(B, H, T, D)
    context[:, 1] = torch.nan
    assert edit.replace_heads(context).isfinite().all()


def test_the_mean_is_over_the_real_tokens_of_all_texts():
    q, k, _ = random_qkv(B=B, H=H, T=T, S=T, D=D)
    real = torch.tensor([[True] * 5, [False] * 3 + [True] * 2])
    call = made_call("h.0", q=q, k=k, real=real)
    edit = CallEdit([PlacedEdit(LayerEdit(0, {1: "mean"}), call, Positions(0, 0))])
    context = torch.randn(B, H, T, D)
    mean = context[:, 1][real].mean(0)
    torch.testing.assert_close(edit.replace_heads(context)[:, 1], mean.expand(B, T, D))


@pytest.mark.parametrize("cut", [{"values": {1: 0}}, {"edges": [(None, 2, 1)], "heads": [1]}])
def test_a_head_whose_place_is_assumed_is_not_cut(cut):
    basis = Basis(heads=assumed("6 matrices are 3 heads for each of 2 texts"))
    with pytest.raises(
        ValueError, match=r"cannot cut a head of h\.0: where its heads are is assumed, .*6 matrices are 3"
    ):
        made(**cut, basis=basis)


def test_edges_of_all_heads_are_removed_also_where_heads_are_assumed():
    _, edit = made(edges=[(None, 2, 1)], basis=Basis(heads=assumed("6 matrices are 3 heads for each of 2 texts")))
    assert edit.rows().tolist() == [2]


def test_a_head_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"layer 0 \(h.0\) has heads 0 to 2, and head 3 was to be cut"):
        made({3: 0})
    with pytest.raises(ValueError, match=r"has heads 0 to 2, and head 4 was to be cut"):
        made(edges=[(None, 1, 0)], heads=[4])
