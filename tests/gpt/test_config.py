"""GPTConfig: what it works out, and what it refuses."""

import pytest

from regard import GPTConfig

SIZES = {"vocab_size": 97, "context_length": 23, "num_layers": 2, "d_model": 30, "num_heads": 3}


def test_what_is_not_said_follows_from_the_rest():
    config = GPTConfig(**SIZES)
    assert (config.kv_heads, config.inner, config.head_dim, config.ends) == (3, 120, 10, ())
    assert (config.with_(num_kv_heads=1).kv_heads, config.with_(d_ff=41).inner) == (1, 41)


def test_a_text_may_end_in_several_ways():
    assert GPTConfig(**SIZES, end=7).ends == (7,)
    assert GPTConfig(**SIZES, end=(7, 11)).ends == (7, 11)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, r"num_layers \(0\) must be a whole number of at least 1"),
        ({"d_model": 31}, r"d_out \(31\) must be divisible by num_heads \(3\); try 30 or 33"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ({"norm": "batch"}, r"norm \('batch'\) must be one of 'layer', 'rms'"),
        ({"feed_forward": "relu"}, r"feed_forward \('relu'\) must be one of 'gelu', 'gelu_exact', 'swiglu'"),
        ({"norm_eps": 0.0}, r"norm_eps \(0.0\) must be above 0 and below 1; 1e-5 is usual"),
        ({"end": 97}, r"end \(97\) must be a token id below vocab_size \(97\)"),
        ({"end": (5, -1)}, r"end \(\(5, -1\)\) must be a token id below vocab_size \(97\)"),
    ],
)
def test_what_cannot_be_built_is_said(change, message, without_shape_checks):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**SIZES | change)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gpt2-smal",
            r"no preset is called 'gpt2-smal'; there are micro, tiny, gpt2-small, .*; did you mean gpt2-small\?",
        ),
        (
            "gpt2",
            r"did you mean gpt2-small\? GPT\.from_pretrained\('gpt2'\) loads the trained weights from the hub$",
        ),
        ("medium", r"did you mean gpt2-medium\?"),
        ("bert", r"no preset is called 'bert'; there are micro, tiny, gpt2-small, gpt2-medium, gpt2-large, gpt2-xl$"),
    ],
)
def test_a_preset_that_is_not_there_is_said(name, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig.preset(name)
