"""Edges and positions of a cut, by number and by word: where they are in a call, and which were never there."""

import pytest
import torch
from torch import nn

import regard
from heads.made_calls import made_call
from heads.models import gpt2
from helpers import random_qkv
from regard import causal
from regard.heads.calls.call import TextIds
from regard.heads.calls.edits import Positions
from regard.heads.change.cut_edges import CutEdges, CutRows
from regard.heads.inputs.pieces import WordReader

TEXTS = [["the", "cat", "sat", "on", "it"], ["on", "it", "sat", "the", "cat"]]


def made(T=5, S=5, tokens=True, **options):
    q, k, _ = random_qkv(B=2, H=3, T=T, S=S, D=4)
    reader = WordReader(TEXTS)
    ids = torch.tensor(reader.ids) if tokens else None
    return reader, made_call("h.0", q=q, k=k, mask=causal(), tokens=ids, **options)


def test_a_position_is_the_same_in_every_text():
    _, call = made()
    assert CutEdges([(3, 1)], None).find(call, Positions(0, 0)) == [(None, 3, 1)]


def test_with_a_cache_positions_count_from_the_start_of_the_text():
    _, call = made(T=1, S=5)
    edges = CutEdges([(4, 1), (3, 1)], None)
    assert edges.find(call, Positions(4, 0)) == [(None, 0, 1)]
    assert edges.met == {0}


def test_keys_that_a_cache_has_dropped_are_passed_over():
    _, call = made(T=1, S=3)
    assert CutEdges([(9, 8), (9, 2)], None).find(call, Positions(9, 7)) == [(None, 0, 1)]


def test_a_word_is_found_in_each_text():
    reader, call = made()
    assert CutEdges([("sat", "cat")], reader).find(call, Positions(0, 0)) == [(0, 2, 1), (1, 2, 4)]


def test_a_generation_keeps_the_places_of_its_first_words():
    reader, call = made()
    edges = CutEdges([(5, "cat")], reader)
    edges.find(call, Positions(0, 0))
    _, step = made(T=1, S=6, tokens=False)
    assert edges.find(step, Positions(5, 0)) == [(0, 0, 1), (1, 0, 4)]


def test_words_of_two_texts_are_found_in_their_own():
    reader, call = made(across=True, tokens=False)
    ids = torch.tensor(reader.ids)
    q, k, _ = random_qkv(B=2, H=3, T=5, S=5, D=4)
    call = made_call("h.0", q=q, k=k, across=True, query_text=TextIds(ids), key_text=TextIds(ids.flip(0)))
    assert CutEdges([("sat", "cat")], reader).find(call, Positions(0, 0)) == [(0, 2, 4), (1, 2, 1)]
    with pytest.raises(ValueError, match=r"h.0 is cross-attention, whose queries and keys are different texts"):
        CutEdges([(1, 0)], reader, one_text=True).find(call, Positions(0, 0))


def test_a_word_that_is_missing_is_named_with_its_text():
    reader, call = made()
    with pytest.raises(ValueError, match=r"text 0: no token is called 'dog'"):
        CutEdges([("sat", "dog")], reader).find(call, Positions(0, 0))


def test_words_need_ids_and_a_reader():
    reader, call = made(tokens=False)
    with pytest.raises(ValueError, match="no tokenizer is known to read the token ids; give it"):
        CutEdges([("sat", "cat")], None).find(call, Positions(0, 0))
    with pytest.raises(ValueError, match="not called with token ids that can be seen; use positions"):
        CutEdges([("sat", "cat")], reader).find(call, Positions(0, 0))


def test_edges_that_were_never_there_are_refused_at_the_end():
    _, call = made()
    past, future = CutEdges([(3, 1), (5, 1)], None), CutEdges([(3, 1), (1, 3)], None)
    for edges in (past, future):
        edges.find(call, Positions(0, 0))
    with pytest.raises(ValueError, match=r"edge \(5, 1\) was not there to cut: .* had 5 queries and 5 keys"):
        past.check_met()
    with pytest.raises(ValueError, match=r"edge \(1, 3\) was not there to cut: this query cannot see this key"):
        future.check_met()


# positions at which heads hand over something else


def test_positions_are_found_in_each_text_by_number_or_by_word():
    reader, call = made()
    rows = CutRows(["cat", 2], reader).find(call, Positions(0, 0))
    assert rows.nonzero().tolist() == [[0, 1], [0, 2], [1, 2], [1, 4]]
    assert CutRows(3, None).find(call, Positions(0, 0)).nonzero().tolist() == [[0, 3], [1, 3]]


def test_with_a_cache_positions_are_those_of_the_whole_text():
    _, call = made(T=1, S=5)
    rows = CutRows([1, 4], None)
    assert rows.find(call, Positions(4, 0)).tolist() == [[True], [True]]
    with pytest.raises(
        ValueError, match=r"position 1 was not there: the layers concerned had 5 queries; positions count"
    ):
        rows.check_met()


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([], "positions is empty; name at least one"),
        ([-1], "positions has -1; tokens are words, or positions from 0"),
    ],
)
def test_positions_that_are_none_are_refused(positions, message):
    with pytest.raises(ValueError, match=message):
        CutRows(positions, None)


# patching: what another run did


KINDS = ["ours", "grouped", "sdpa", "eager"]
OTHER, OWN = (torch.randint(3, 53, (2, 7), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))


def patched_model(kind):
    torch.manual_seed(3)
    if kind in ("ours", "grouped"):
        sizes = {"vocab_size": 53, "context_length": 16, "num_layers": 2, "d_model": 24, "num_heads": 4}
        return regard.GPT(regard.GPTConfig(**sizes, num_kv_heads=2 if kind == "grouped" else 4)).double().eval()
    pytest.importorskip("transformers")
    model = gpt2()
    model.set_attn_implementation(kind)
    return model.double()


def watched(model, ids, **cut):
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        if cut:
            with regard.cut(model, **cut):
                model(ids)
        else:
            model(ids)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_another_run_is_handed_over_at_these_positions_only(kind):
    model = patched_model(kind)
    other, own = watched(model, OTHER), watched(model, OWN)
    seen = watched(model, OWN, heads=(1, 2), to=other, positions=[3, 5])
    expected = own[1].context.clone()
    expected[:, 2, [3, 5]] = other[1].context[:, 2, [3, 5]]
    torch.testing.assert_close(seen[1].context, expected)
    assert torch.equal(seen[0].context, own[0].context)


@pytest.mark.parametrize("heads", [(1, 2), None])
@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_of_another_run_has_its_weight_there_and_the_others_stay(kind, heads):
    model = patched_model(kind)
    other, own = watched(model, OTHER), watched(model, OWN)
    named = {"layers": [1]} if heads is None else {"heads": heads}
    seen = watched(model, OWN, edges=[(5, 2), (6, 6)], to=other, **named)
    weights, which = own[1].weights().clone(), slice(None) if heads is None else heads[1]
    for query, key in ((5, 2), (6, 6)):
        weights[:, which, query, key] = other[1].weights()[:, which, query, key]
    torch.testing.assert_close(seen[1].weights(), weights)
    values = torch.linalg.lstsq(own[1].weights(), own[1].context).solution  # causal weights have an inverse
    torch.testing.assert_close(seen[1].context, weights @ values)


def test_edges_of_another_run_with_other_texts_are_refused():
    model = patched_model("ours")
    other = watched(model, torch.cat([OTHER, OTHER[:1]]))
    message = r"attends in 2 texts with 4 heads here, and in 3 with 4 in the other run"
    with pytest.raises(ValueError, match=message):
        watched(model, OWN, heads=(1, 2), edges=[(5, 2)], to=other)
    with pytest.raises(ValueError, match=r"edges say which queries are concerned; leave positions out"):
        watched(model, OWN, heads=(1, 2), edges=[(5, 2)], positions=[3])


def test_gradients_reach_everything_but_what_was_patched():
    model = patched_model("ours")
    other = watched(model, OTHER)
    with regard.cut(model, (1, 2), to=other, positions=[6]):
        model(OWN)[:, 6].sum().backward()
    D = model.blocks[1].attention.head_dim
    grad = model.blocks[1].attention.W_value.weight.grad
    assert not grad[2 * D : 3 * D].any()
    assert grad[:D].any()


@torch.no_grad()
def test_an_edge_of_a_softmin_is_removed():
    class Softmin(nn.Module):
        num_heads = 1

        def forward(self, x):
            return nn.functional.softmin(-x @ x.mT, dim=-1)[:, None] @ x[:, None]

    model, x = Softmin(), torch.randn(2, 5, 3)
    scores = x @ x.mT
    scores[:, 3, 1] = -torch.inf
    with regard.cut(model, edges=[(3, 1)]):
        torch.testing.assert_close(model(x), (scores.softmax(-1) @ x)[:, None])
