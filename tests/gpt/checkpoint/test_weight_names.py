import pytest
import torch

from regard import GPT, GPTConfig, Rotary
from regard.gpt.checkpoint.weight_names import places_in_file

SMALL = {"vocab_size": 97, "context_length": 23, "num_layers": 2}
LLAMA = {
    **SMALL,
    "d_model": 60,
    "num_heads": 6,
    "num_kv_heads": 3,
    "d_ff": 37,
    "rotary": Rotary(),
    "norm": "rms",
    "feed_forward": "swiglu",
    "qkv_bias": False,
    "bias": False,
}
CONFIGS = {
    "gpt2": GPTConfig(**SMALL, d_model=21, num_heads=3),
    "gpt2, untied": GPTConfig(**SMALL, d_model=21, num_heads=3, d_ff=29, tied=False),
    "llama": GPTConfig(**LLAMA, tied=False),
    "llama, with biases": GPTConfig(**{**LLAMA, "qkv_bias": True, "bias": True}),
    "qwen2": GPTConfig(**{**LLAMA, "qkv_bias": True}),
    "qwen3": GPTConfig(**LLAMA, qk_norm=True),
    "regard": GPTConfig(**{**LLAMA, "norm": "layer"}),
    "regard, with biases": GPTConfig(**{**LLAMA, "norm": "layer", "qkv_bias": True, "bias": True}, qk_norm=True),
    "regard, rms": GPTConfig(**SMALL, d_model=21, num_heads=3, num_kv_heads=1, norm="rms", window=5, tied=False),
    "regard, one bias": GPTConfig(**SMALL, d_model=22, num_heads=11, rotary=Rotary(), qkv_bias=False, d_ff=29),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_weight_of_a_model_has_a_place_of_its_shape(name):
    config, kind = CONFIGS[name], name.split(",")[0]
    with torch.device("meta"):
        wanted = {name: tuple(weight.shape) for name, weight in GPT(config).state_dict().items()}
    found = {}
    for ours, place in places_in_file(config, kind).items():
        begin, end = place.part or (0, place.shape[-1])
        shape = (*place.shape[:-1], end - begin)
        found[ours] = shape[::-1] if place.transposed else shape
    assert found == wanted


@pytest.mark.parametrize("name", CONFIGS)
def test_no_two_weights_have_the_same_place(name):
    found = list(places_in_file(CONFIGS[name], name.split(",")[0]).values())
    assert len(set(found)) == len(found)


def test_gpt2_small_has_the_tensors_and_the_numbers_that_openai_published():
    found = places_in_file(GPTConfig.preset("gpt2-small"), "gpt2")
    shapes = {place.name: place.shape for place in found.values()}
    assert len(shapes) == 148
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == 124_439_808
