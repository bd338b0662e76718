"""The model whose heads stand in another order."""

import pytest
import torch

import regard
from regard.school.exercises.shuffled import head_order, move_heads, shuffled_tiny

IDS = torch.tensor([[5, 17, 911, 42, 5, 17, 911]])


def test_the_model_computes_the_same_in_any_order():
    with torch.no_grad():
        plain, shuffled = shuffled_tiny(0)(IDS), shuffled_tiny(3)(IDS)
    torch.testing.assert_close(shuffled, plain, rtol=1e-4, atol=1e-3)


def test_the_heads_are_those_that_the_order_says():
    weights = []
    for seed in (0, 7):
        model = shuffled_tiny(seed)
        with torch.no_grad(), regard.watch(model) as seen:
            model(IDS)
        weights.append([[seen[layer, head].weights()[0] for head in range(8)] for layer in range(6)])
    for layer in range(6):
        moved = [weights[0][layer][head] for head in head_order(7, layer, 8)]
        torch.testing.assert_close(torch.stack(weights[1][layer]), torch.stack(moved), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", [1, 2, 99])
def test_no_head_keeps_its_place(seed):
    for layer in range(6):
        order = head_order(seed, layer, 8)
        assert sorted(order) == list(range(8))
        assert all(head != place for place, head in enumerate(order))


def test_moving_heads_of_a_layer_leaves_its_output():
    torch.manual_seed(0)
    layer, x = regard.MultiHeadAttention(6, 12, 5, 0.0, 3), torch.randn(2, 5, 6)
    before = layer(x)
    move_heads(layer, [2, 0, 1])
    torch.testing.assert_close(layer(x), before)
