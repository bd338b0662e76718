"""The door of attend(): who is told of what, in which thread."""

import threading

import pytest
import torch

from helpers import random_qkv
from regard import MultiHeadAttention, attend, causal
from regard.attention.observers import busy, observe, observed


def test_the_observer_is_told_all_that_goes_in_before_it_runs():
    q, k, v = random_qkv(2, 3, 5, 5, 4)
    told = []
    mask, slopes = causal(), torch.rand(3)
    with observe(lambda *what: told.append((busy(), *what))):
        attend(q, k, v, mask=mask, scale=0.5, alibi=slopes)
    ((was_busy, path, *tensors, dropout, rule, scale, alibi),) = told
    assert (was_busy, path.name, dropout, rule, scale) == (False, "tiled", 0.0, mask, 0.5)
    assert alibi is slopes
    assert [t is u for t, u in zip(tensors, (q, k, v), strict=True)] == [True] * 3


def test_nobody_is_told_outside_nor_after_an_error():
    q, k, v = random_qkv(1, 1, 3, 3, 4)

    def refuse(*_):
        raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"), observe(refuse):
        attend(q, k, v)
    assert not observed()
    assert not busy()
    attend(q, k, v)


def test_the_inner_of_two_observers_is_told_and_the_outer_one_again_afterwards():
    q, k, v = random_qkv(1, 1, 3, 3, 4)
    outer, inner = [], []
    with observe(lambda *_: outer.append(1)):
        with observe(lambda *_: inner.append(1)):
            attend(q, k, v)
        attend(q, k, v)
    assert (outer, inner) == ([1], [1])


def test_threads_observe_their_own_attention_only():
    layer, x = MultiHeadAttention(8, 8, 16, 0.0, 2), torch.randn(1, 5, 8)
    both, counts = threading.Barrier(2), {}

    def run(name, times):
        told = []
        with observe(lambda *_: told.append(1)):
            both.wait()
            for _ in range(times):
                layer(x)
            both.wait()
        counts[name] = len(told)

    threads = [threading.Thread(target=run, args=what) for what in (("a", 3), ("b", 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"a": 3, "b": 5}
    assert not observed()
