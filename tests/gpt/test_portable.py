"""A model as plain values: its plan names every tensor, and its weights are exact. The engine's results are compared in
tests/show/page/test_model_in_node.py."""

import json

import pytest
import torch
from safetensors.torch import load

import regard
from regard.gpt.portable import portable

SMALL = regard.GPTConfig(vocab_size=31, context_length=17, num_layers=2, d_model=12, num_heads=3, end=(3, 5))


def names_in(value):
    """Every text in a plan that can be a tensor's name."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {name for one in value for name in names_in(one)}
    return {value} if isinstance(value, str) and "." in value else set()


@pytest.mark.parametrize("tied", [True, False])
def test_the_plan_names_every_parameter_and_is_json(tied):
    model = regard.GPT(SMALL.with_(tied=tied))
    plan, weights = portable(model)
    assert json.loads(json.dumps(plan)) == plan
    assert names_in(plan) == set(load(weights)) == {name for name, _ in model.named_parameters()}
    assert plan["ends"] == [3, 5]


def test_weights_are_halved_only_where_that_changes_none():
    model = regard.GPT(SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    stored = load(portable(model).weights)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    with torch.no_grad():
        model.final_norm.weight[7] = 0.1
    stored = load(portable(model).weights)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(stored[name], parameter.detach(), atol=0, rtol=0)


def test_attention_that_the_engine_does_not_know_is_refused():
    model = regard.GPT(SMALL)
    model.blocks[1].attention.causal = False
    with pytest.raises(ValueError, match="a layer with alibi=False, causal=False cannot run outside Python; what can"):
        portable(model)
