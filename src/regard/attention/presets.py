"""Presets: the sizes of GPT-2 and GPT-3, and one attention layer of each.

Some tables in circulation give GPT-2 medium 24 heads and large 36. Those are their layers; the heads are 16 and 20.
OpenAI's own weights need qkv_bias=True, which regard.GPT("gpt2-small") sets by itself; the default is the textbook's.
"""

from __future__ import annotations

from typing import TypedDict

from torch import nn

from regard.attention.layer import MultiHeadAttention
from regard.support.super_init import check_initialised


class ModelSize(TypedDict):
    """The sizes of one model of a family, and the options of its attention.

    >>> size = GPT2_CONFIGS["gpt2-small"]
    >>> size["d_model"], size["num_heads"], size["head_dim"], size["dropout"], size["qkv_bias"]
    (768, 12, 64, 0.1, False)

    The options are those of the textbook's layer; GPTConfig.preset("gpt2-small") has the same sizes, but qkv_bias=True
    and dropout=0.0, because it is made to load and run OpenAI's weights.
    """

    num_layers: int
    d_model: int
    num_heads: int
    head_dim: int
    context_length: int
    vocab_size: int
    dropout: float
    qkv_bias: bool  # OpenAI's weights need True


def _size(num_layers: int, d_model: int, num_heads: int, context_length: int = 1024) -> ModelSize:
    return ModelSize(
        num_layers=num_layers,
        d_model=d_model,
        num_heads=num_heads,
        head_dim=d_model // num_heads,
        context_length=context_length,
        vocab_size=50257,
        dropout=0.1,
        qkv_bias=False,
    )


GPT2_CONFIGS: dict[str, ModelSize] = {
    "gpt2-small": _size(12, 768, 12),
    "gpt2-medium": _size(24, 1024, 16),
    "gpt2-large": _size(36, 1280, 20),
    "gpt2-xl": _size(48, 1600, 25),
}
GPT3_CONFIG: ModelSize = _size(96, 12288, 96, context_length=2048)


def create_gpt2_small_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 small: 768 wide, 12 heads. OpenAI's weights need qkv_bias=True.

    >>> count_parameters(create_gpt2_small_attention()), count_parameters(create_gpt2_small_attention(qkv_bias=True))
    (2360064, 2362368)
    """
    return _attention(GPT2_CONFIGS["gpt2-small"], dropout, qkv_bias)


def create_gpt2_medium_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 medium: 1024 wide, 16 heads. OpenAI's weights need qkv_bias=True."""
    return _attention(GPT2_CONFIGS["gpt2-medium"], dropout, qkv_bias)


def create_gpt2_large_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 large: 1280 wide, 20 heads. OpenAI's weights need qkv_bias=True."""
    return _attention(GPT2_CONFIGS["gpt2-large"], dropout, qkv_bias)


def create_gpt2_xl_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 XL: 1600 wide, 25 heads. OpenAI's weights need qkv_bias=True."""
    return _attention(GPT2_CONFIGS["gpt2-xl"], dropout, qkv_bias)


def create_gpt3_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-3: 12288 wide, 96 heads; 2.4 GB in float32, none on torch.device("meta")."""
    return _attention(GPT3_CONFIG, dropout, qkv_bias)


def count_parameters(module: nn.Module) -> int:
    """How many numbers a module learns; a parameter used twice counts once."""
    check_initialised(module)
    return sum(p.numel() for p in module.parameters())


def _attention(size: ModelSize, dropout: float, qkv_bias: bool) -> MultiHeadAttention:
    width = size["d_model"]
    return MultiHeadAttention(width, width, size["context_length"], dropout, size["num_heads"], qkv_bias)
