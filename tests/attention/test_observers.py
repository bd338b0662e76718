"""Observers of attend(): what they get, in which thread."""

import threading

import pytest
import torch
import torch.nn.functional as F

from helpers import paths_taken, random_qkv
from regard import MultiHeadAttention, attend, attend_in_steps, causal
from regard.attention.observers import inside_observed_attention, is_observed, observe


def test_the_observer_gets_the_call_and_its_route_before_it_runs():
    q, k, v = random_qkv(2, 3, 5, 5, 4)
    seen = []
    mask, slopes = causal(), torch.rand(3)
    with observe(lambda call, route: seen.append((inside_observed_attention(), call, route))):
        attend(q, k, v, mask=mask, scale=0.5, alibi=slopes)
    ((inside, call, route),) = seen
    assert (inside, route.name, call.dropout, call.mask, call.scale) == (False, "tiled", 0.0, mask, 0.5)
    assert call.alibi is slopes
    assert [t is u for t, u in zip(call.qkv, (q, k, v), strict=True)] == [True] * 3


def test_an_attention_knows_that_it_is_observed_while_it_runs(monkeypatch):
    q, k, v = random_qkv(1, 1, 3, 3, 4)
    inside, sdpa = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **b: inside.append(inside_observed_attention()) or sdpa(*a, **b)
    )
    attend(q, k, v)
    with observe(lambda *_: None):
        attend(q, k, v)
    assert inside == [False, True]


def test_nothing_is_observed_outside_nor_after_an_error():
    q, k, v = random_qkv(1, 1, 3, 3, 4)

    def refuse(*_):
        raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"), observe(refuse):
        attend(q, k, v)
    assert not is_observed()
    assert not inside_observed_attention()
    attend(q, k, v)


def test_the_inner_of_two_observers_is_called_and_the_outer_one_again_afterwards():
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
        seen = []
        with observe(lambda *_: seen.append(1)):
            both.wait()
            for _ in range(times):
                layer(x)
            both.wait()
        counts[name] = len(seen)

    threads = [threading.Thread(target=run, args=what) for what in (("a", 3), ("b", 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"a": 3, "b": 5}
    assert not is_observed()


def test_an_observer_leaves_when_its_block_fails():
    with pytest.raises(ZeroDivisionError, match="on purpose"), paths_taken() as taken:
        raise ZeroDivisionError("on purpose")
    attend(*random_qkv(B=1, H=1, T=2, S=2, D=8))
    assert taken == []


def test_an_observer_may_change_what_attention_returns():
    class Doubled:
        def context(self, context):
            return 2 * context

        def weights(self, weights):
            return 3 * weights

    q, k, v = random_qkv(2, 3, 5, 5, 4)
    context, weights = attend_in_steps(q, k, v, mask=causal())
    with observe(lambda *_: Doubled()):
        torch.testing.assert_close(attend(q, k, v, mask=causal()), 2 * context)
        changed = attend_in_steps(q, k, v, mask=causal())
    torch.testing.assert_close(changed, (2 * context, 3 * weights))
