"""A watched call: an attention, and what is known about where it came from."""

from dataclasses import replace

import torch

from helpers import random_qkv
from regard.attention.call import QK, Call
from regard.heads.calls.call import Origin, OwnWeights, WatchedCall, changed, names_in_short
from regard.support.hidden_scores import HIDES


def test_a_query_is_not_at_the_keys_that_were_appended():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=7, D=4)
    assert WatchedCall(QK(q=q, k=k)).shift == 2
    assert WatchedCall(QK(q=q, k=k), Origin(extra=2)).shift == 0


def test_sizes_come_from_the_weights_where_a_model_computed_them():
    call = WatchedCall(OwnWeights(torch.rand(2, 3, 5, 7)))
    assert (call.sizes, call.shift) == ((2, 3, 5, 7), 2)


def test_the_lowest_number_of_every_dtype_hides_a_key_and_no_real_score_does():
    assert all(torch.finfo(dtype).min < HIDES for dtype in (torch.float16, torch.bfloat16, torch.float32))
    assert HIDES < -10_000


def test_a_detached_call_has_no_gradients_and_no_values():
    q, k, v = (t.requires_grad_() for t in random_qkv(B=2, H=3, T=5, S=7, D=4))
    bias = torch.zeros(5, 7, requires_grad=True)
    call = WatchedCall(Call(q=q, k=k, v=v, bias=bias, scale=0.5, dropout=0.1), Origin("h.0")).detached()
    assert type(call.attention) is QK
    assert not any(t.requires_grad for t in (call.attention.q, call.attention.k, call.attention.bias))
    assert (call.attention.scale, call.origin.module) == (0.5, "h.0")
    assert call.detached() is call


def test_changed_replaces_fields_and_nothing_else():
    q = torch.randn(2, 3, 5, 7)
    call = WatchedCall(QK(q=q, k=q, scale=0.5), Origin("a"))
    assert changed(call, lse=q) == replace(call, lse=q)
    new = call.with_origin(module="b").with_attention(scale=0.25)
    assert new == WatchedCall(replace(call.attention, scale=0.25), replace(call.origin, module="b"))
    assert (call.origin.module, call.attention.scale) == ("a", 0.5)


def test_names_that_differ_by_a_running_number_are_one():
    names = [f"model.layers.{i}.self_attn" for i in range(12)]
    assert names_in_short(names) == "model.layers.0–11.self_attn"
    assert names_in_short(["encoder.0", "encoder.1", "decoder.0", "decoder.1"]) == "encoder.0–1, decoder.0–1"
    assert names_in_short(["h.0", "h.2"]) == "h.0, h.2"
    assert names_in_short(["a.0.b.0", "a.0.b.1", "a.1.b.0"]) == "a.0.b.0–1, a.1.b.0"
    assert names_in_short([]) == ""


def test_many_names_are_cut_to_the_width():
    short = names_in_short([f"{c}{c}{c}" for c in "abcdefghijklmnop"], width=30)
    assert short == "aaa, bbb, ccc, ddd, eee, fff,…"
