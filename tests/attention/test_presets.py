"""The sizes of GPT-2 and GPT-3, and right parameter counts."""

import pytest
import torch

import regard

SIZES = {
    "gpt2-small": (12, 768, 12, 64, 1024, 50257),
    "gpt2-medium": (24, 1024, 16, 64, 1024, 50257),
    "gpt2-large": (36, 1280, 20, 64, 1024, 50257),
    "gpt2-xl": (48, 1600, 25, 64, 1024, 50257),
}


def test_the_table_is_gpt2s():
    fields = ("num_layers", "d_model", "num_heads", "head_dim", "context_length", "vocab_size")
    assert {name: tuple(size[f] for f in fields) for name, size in regard.GPT2_CONFIGS.items()} == SIZES
    options = {(size["dropout"], size["qkv_bias"]) for size in [*regard.GPT2_CONFIGS.values(), regard.GPT3_CONFIG]}
    assert options == {(0.1, False)}
    assert tuple(regard.GPT3_CONFIG[f] for f in fields) == (96, 12288, 96, 128, 2048, 50257)


@pytest.mark.parametrize(
    ("create", "width", "heads", "context"),
    [
        (regard.create_gpt2_small_attention, 768, 12, 1024),
        (regard.create_gpt2_medium_attention, 1024, 16, 1024),
        (regard.create_gpt2_large_attention, 1280, 20, 1024),
        (regard.create_gpt2_xl_attention, 1600, 25, 1024),
        (regard.create_gpt3_attention, 12288, 96, 2048),
    ],
    ids=["small", "medium", "large", "xl", "gpt3"],
)
def test_each_factory_builds_its_layer(create, width, heads, context):
    with torch.device("meta"):
        layer = create()
        biased = create(dropout=0.0, qkv_bias=True)
    assert (layer.d_in, layer.d_out, layer.num_heads, layer.context_length) == (width, width, heads, context)
    assert (layer.dropout, biased.dropout) == (0.1, 0.0)
    assert layer.W_query.bias is None
    assert regard.count_parameters(layer) == 4 * width * width + width
    assert regard.count_parameters(biased) == 4 * width * width + 4 * width


def test_the_small_layer_counts_its_output_bias():
    assert regard.count_parameters(regard.create_gpt2_small_attention()) == 2_360_064
