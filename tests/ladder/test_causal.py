"""Rung 3: no look at the future, and dropout."""

import pytest
import torch

from regard import trace
from regard.ladder import CausalAttention, CausalSelfAttention, SelfAttention


def test_the_two_names_are_one_class():
    assert CausalSelfAttention is CausalAttention


def test_a_changed_future_changes_nothing_earlier():
    layer = CausalAttention(3, 5, context_length=11, dropout=0.0)
    x = torch.randn(2, 7, 3)
    other = x.clone()
    other[:, 4:] = torch.randn(2, 3, 3)
    torch.testing.assert_close(layer(x)[:, :4], layer(other)[:, :4], rtol=0, atol=0)
    assert not torch.allclose(layer(x)[:, 4:], layer(other)[:, 4:])


def test_the_last_word_sees_what_unmasked_attention_sees():
    causal, free = CausalAttention(3, 5, 7, 0.0), SelfAttention(3, 5)
    free.load_state_dict(causal.state_dict())
    x = torch.randn(2, 7, 3)
    torch.testing.assert_close(causal(x)[:, -1], free(x)[:, -1])


def test_hidden_scores_are_minus_infinity_and_their_weights_zero():
    t = trace(CausalAttention(3, 2, 6, 0.0), torch.randn(1, 5, 3))
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(t["mask"][0][future], torch.full((10,), -torch.inf))
    torch.testing.assert_close(t["weights"][0][future], torch.zeros(10))
    torch.testing.assert_close(t["weights"].sum(-1), torch.ones(1, 5))


def test_dropout_acts_in_training_and_not_in_eval():
    layer = CausalAttention(3, 2, 64, dropout=0.5)
    x = torch.randn(1, 61, 3)
    kept = trace(layer.train(), x)["dropout"]
    below = torch.ones(61, 61, dtype=torch.bool).tril()
    assert 0.4 < (kept[0][below] == 0).float().mean() < 0.6
    torch.testing.assert_close(layer.eval()(x), layer(x))


def test_a_text_longer_than_the_context_says_what_fits():
    layer = CausalAttention(3, 2, context_length=16, dropout=0.0)
    with pytest.raises(
        ValueError,
        match=r"17 tokens do not fit context_length=16; pass at most 16, or build the layer with context_length=17",
    ):
        layer(torch.randn(1, 17, 3))


def test_dropout_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"dropout \(1.5\) must be at least 0 and below 1"):
        CausalAttention(3, 2, 6, dropout=1.5)


def test_the_mask_moves_with_the_layer_and_is_not_saved():
    layer = CausalAttention(3, 2, 6, 0.0)
    assert "mask" not in layer.state_dict()
    assert layer.to("meta").mask.is_meta
