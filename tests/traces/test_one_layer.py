"""Tracing one layer of a model."""

import pytest
import torch

import regard
from regard.traces.one_layer import trace_layer, trace_layers


def test_tracing_one_layer_of_a_model_gives_its_weights():
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([[5, 17, 23, 42, 7]])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    for layer in (4, "blocks.4.attention"):
        torch.testing.assert_close(trace_layer(model, layer, ids)["weights"], seen[4].weights())
    assert not model.blocks[4].attention._forward_pre_hooks


def test_a_layer_that_is_not_there_says_which_are():
    model = regard.GPT("tiny")
    with pytest.raises(ValueError, match="there is no layer 6; this model has layers 0 to 5"):
        trace_layer(model, 6, torch.tensor([[1]]))
    with pytest.raises(ValueError, match=r"no layer is called 'attn'; seen.layers has the names"):
        trace_layer(model, "attn", torch.tensor([[1]]))
    with pytest.raises(ValueError, match=r"Linear has no regard.MultiHeadAttention to count; give the layer's name"):
        trace_layer(torch.nn.Linear(2, 3), 0, torch.ones(2))


def test_several_layers_are_traced_by_their_numbers():
    model = regard.GPT("tiny").eval()
    ids = torch.tensor([[5, 17, 23]])
    traces = trace_layers(model, {"ids": ids}, [4, 1])
    assert list(traces) == [4, 1]
    torch.testing.assert_close(traces[1]["weights"], trace_layer(model, 1, ids)["weights"])
