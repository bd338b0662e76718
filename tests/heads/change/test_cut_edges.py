"""The edges of a cut, by position and by word: where they are in a call, and which were never there."""

import pytest
import torch

from heads.made_calls import made_call
from helpers import random_qkv
from regard import causal
from regard.heads.calls.call import TextIds
from regard.heads.calls.edits import Positions
from regard.heads.change.cut_edges import CutEdges
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
