"""A block is its formula, written out in loops and plain operations, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard import GPT, GPTConfig, Rotary
from regard.gpt.block import Attend, Block, FeedForward, GatedFeedForward, apply_norm, make_norm

GPT2 = GPTConfig(vocab_size=11, context_length=13, num_layers=1, d_model=12, num_heads=3)
LLAMA = GPT2.with_(
    num_heads=4, num_kv_heads=2, d_model=24, d_ff=17, rotary=Rotary(), norm="rms", feed_forward="swiglu",
    qkv_bias=False, bias=False,
)  # fmt: skip


def random_weights(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module.double().eval()


def test_gpt2s_feed_forward_is_two_products_with_a_bend():
    layer, x = random_weights(FeedForward(5, 7)), torch.randn(2, 3, 5, dtype=torch.float64)
    inner = x @ layer.up.weight.mT + layer.up.bias
    bent = inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3))) / 2
    torch.testing.assert_close(layer(x), bent @ layer.down.weight.mT + layer.down.bias)


def test_llamas_feed_forward_is_gated():
    layer, x = random_weights(GatedFeedForward(5, 7)), torch.randn(2, 3, 5, dtype=torch.float64)
    gate = x @ layer.gate.weight.mT
    inner = gate / (1 + torch.exp(-gate)) * (x @ layer.up.weight.mT)
    torch.testing.assert_close(layer(x), inner @ layer.down.weight.mT)


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_each_half_is_added_to_what_was_there(config):
    block, x = random_weights(Block(config)), torch.randn(2, 7, config.d_model, dtype=torch.float64)

    def even(x, by):
        if config.norm == "layer":
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * by.weight
        return x + by.bias if config.norm == "layer" else x

    with torch.no_grad():
        middle = x + block.attention(even(x, block.attention_norm))
        expected = middle + block.feed_forward(even(middle, block.feed_forward_norm))
        torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_the_feed_forward_works_on_every_token_alone(config):
    block, x = random_weights(Block(config)), torch.randn(1, 7, config.d_model, dtype=torch.float64)
    other = x.clone()
    other[:, 3] += 1
    one, changed = block.feed_forward(x), block.feed_forward(other)
    rest = torch.arange(7) != 3
    torch.testing.assert_close(changed[:, rest], one[:, rest], rtol=0, atol=0)
    assert (changed[:, 3] != one[:, 3]).any()


def test_dropout_falls_on_both_halves_in_training_alone():
    block = random_weights(Block(GPT2.with_(dropout=0.5)))
    x = torch.randn(4, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(block(x), block(x), rtol=0, atol=0)
    block.train()
    dropped = []
    block.dropout.register_forward_hook(lambda module, args, out: dropped.append((out == 0).double().mean().item()))
    block(x)
    assert dropped == pytest.approx([0.5, 0.5], abs=0.1)


def test_norms_are_what_the_config_asks_for():
    plain, bare, rms = make_norm(GPT2), make_norm(GPT2.with_(bias=False)), make_norm(LLAMA)
    assert isinstance(plain, nn.LayerNorm)
    assert plain.bias is not None
    assert isinstance(bare, nn.LayerNorm)
    assert bare.bias is None
    assert isinstance(rms, nn.RMSNorm)
    assert rms.eps == 1e-5


def test_a_narrow_x_is_evened_out_in_the_wide_type_of_the_weight():
    by, x = make_norm(GPT2), torch.randn(2, 3, 12).bfloat16()
    found = apply_norm(by, x)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, by(x.float()), rtol=0, atol=0)


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_a_trace_names_both_halves_of_every_block(config):
    model = random_weights(GPT(config.with_(num_layers=2)))
    t = regard.trace(model, torch.tensor([[1, 2, 3, 4]]))
    for number in ("", " 2"):
        around = t["attended" + number]
        torch.testing.assert_close(t["x" + number], t["attention norm" + number])
        thought = t["feed-forward" + number]
        torch.testing.assert_close(around + thought, t["block out" + number])
        before = t["block out"] if number else around - t["out"]
        torch.testing.assert_close(before + t["out" + number], around)
    assert t.names.index("block out") < t.names.index("attention norm 2")
    table = t.table()
    assert "second norm 2" in table
    assert ("split keys 2" in table) == (config is LLAMA)  # told once, where all have as many heads


@pytest.mark.parametrize("config", [GPT2, LLAMA, LLAMA.with_(qk_norm=True, window=3)], ids=["gpt2", "llama", "qwen"])
def test_the_operations_of_a_block_are_its_forward(config):
    block, x = random_weights(Block(config)), torch.randn(2, 7, config.d_model, dtype=torch.float64)
    result, stream = x, x
    for operation in block.operations():
        if isinstance(operation, Attend):
            result = by_projections_of_nothing(operation.layer, result)
            continue
        source = result if operation.norm is None else operation.norm(stream)
        result = torch.cat([F.linear(source, weight, bias) for weight, bias in operation.weights], dim=-1)
        if operation.gate is not None:
            result = operation.activation.function(F.linear(source, *operation.gate)) * result
        elif operation.activation is not None:
            result = operation.activation.function(result)
        if operation.residual:
            stream = stream + result
    torch.testing.assert_close(stream, block(x))


def by_projections_of_nothing(layer, qkv):
    """The layer's attention over q, k and v that are projected already: its own projections only select from them."""
    sizes = [m.out_features for m in (layer.W_query, layer.W_key, layer.W_value)]
    bare = regard.MultiHeadAttention(
        sum(sizes), layer.d_out, None, 0.0, layer.num_heads, num_kv_heads=layer.num_kv_heads, window=layer.window,
        rotary=layer.rotary, qk_norm=layer.q_norm is not None, out_bias=False,
    ).double()  # fmt: skip
    with torch.no_grad():
        parts = torch.eye(sum(sizes), dtype=torch.float64).split(sizes)
        for module, part in zip((bare.W_query, bare.W_key, bare.W_value), parts, strict=True):
            module.weight.copy_(part)
        bare.out_proj.weight.copy_(torch.eye(layer.d_out))
        if layer.q_norm is not None:
            bare.q_norm.weight.copy_(layer.q_norm.weight)
            bare.k_norm.weight.copy_(layer.k_norm.weight)
    return bare(qkv)
