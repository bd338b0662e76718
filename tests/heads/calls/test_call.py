"""A watched call: an attention call, and what is known about its text."""

from dataclasses import replace

import torch

from helpers import random_qkv
from regard.attention.masks import causal
from regard.heads.calls.call import WatchedCall
from regard.support.hidden_scores import HIDES


def test_a_query_is_not_at_the_keys_that_were_appended():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=7, D=4)
    assert WatchedCall("", q=q, k=k).shift == 2
    assert WatchedCall("", q=q, k=k, extra=2).shift == 0


def test_every_tensor_moves_and_nothing_else_changes():
    q, k, _ = random_qkv(B=2, H=3, T=5, S=7, D=4)
    tensors = {"bias": torch.zeros(5, 7), "alibi": torch.ones(3), "lse": torch.zeros(2, 3, 5)}
    tensors |= {
        "real": torch.ones(2, 5, dtype=torch.bool),
        "tokens": torch.zeros(2, 7, dtype=torch.long),
        "context": torch.zeros(2, 3, 5, 4),
    }
    call = WatchedCall("h.0", q=q, k=k, mask=causal(), scale=0.5, across=True, extra=1, **tensors)
    moved = call.moved("meta")
    assert all(getattr(moved, name).is_meta for name in ("q", "k", *tensors))
    same = ("module", "mask", "scale", "across", "extra", "sizes")
    assert [getattr(moved, name) for name in same] == [getattr(call, name) for name in same]


def test_the_lowest_number_of_every_dtype_hides_a_key_and_no_real_score_does():
    assert all(torch.finfo(dtype).min < HIDES for dtype in (torch.float16, torch.bfloat16, torch.float32))
    assert HIDES < -10_000


def test_a_detached_call_has_no_gradients_and_no_values():
    q, k, v = (t.requires_grad_() for t in random_qkv(B=2, H=3, T=5, S=7, D=4))
    call = WatchedCall("h.0", q=q, k=k, v=v, bias=torch.zeros(5, 7, requires_grad=True)).detached()
    assert call.v is None
    assert not any(t.requires_grad for t in (call.q, call.k, call.bias))
    assert call.detached() is call


def test_changed_replaces_fields_and_nothing_else():
    q = torch.randn(2, 3, 5, 7)
    call = WatchedCall("a", q=q, k=q, scale=0.5)
    assert call.changed(module="b", scale=0.25) == replace(call, module="b", scale=0.25)
    assert (call.module, call.scale) == ("a", 0.5)
