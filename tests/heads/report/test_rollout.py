"""Rollout: the product of the layers, row by row."""

import pytest
import torch
from torch.testing import assert_close

from heads import dense
from heads.dense import random_call
from heads.reports import seen_of
from regard.attention.masks import causal


@pytest.fixture(autouse=True)
def _by_definition(monkeypatch):
    dense.stand_in(monkeypatch)


def test_rollout_is_the_product_of_the_layers():
    calls = [random_call(T=5, H=2, mask=causal(), Hkv=1) for _ in range(3)]
    expected = torch.eye(5).double().expand(2, 5, 5)
    for call in calls:
        expected = (0.5 * dense.probabilities(call).mean(1) + 0.5 * torch.eye(5)) @ expected
    seen = seen_of(*calls)
    assert_close(seen.rollout([4, 2]).double(), expected[:, [4, 2]], rtol=1e-6, atol=1e-6)
    assert_close(seen.rollout(slice(None)).double(), expected, rtol=1e-6, atol=1e-6)
    assert_close(seen.rollout(slice(None)).sum(-1), torch.ones(2, 5))


def test_rollout_through_layers_of_different_length_says_which_and_what_to_do():
    seen = seen_of(random_call(T=5), random_call(T=5, S=7), random_call(T=5))
    message = r"all of one length; these are 0: 5 × 5, 1: 5 × 7, 2: 5 × 5 .*choose some with layers=\[…\]"
    with pytest.raises(ValueError, match=message):
        seen.rollout(0)
    assert seen.rollout(0, layers=[0, 2]).shape == (2, 1, 5)


def test_a_layer_that_is_chosen_twice_counts_twice():
    seen = seen_of(random_call(T=5), random_call(T=5))
    once, twice = seen.rollout(slice(None), layers=[1]), seen.rollout(slice(None), layers=[1, 1])
    assert_close(twice, once @ once, rtol=1e-5, atol=1e-6)


def test_rollout_needs_a_layer():
    with pytest.raises(ValueError, match=r"a rollout needs at least one layer; 1 were seen and 0 chosen"):
        seen_of(random_call(T=5)).rollout(0, layers=[])
