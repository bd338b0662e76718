"""Presets: the sizes of GPT-2 and GPT-3, and one attention layer of each.

Some tables in circulation give GPT-2 medium 24 heads and large 36. Those are their layers; 24 does not divide
1024, nor 36 1280. The heads are 16 and 20. OpenAI's own weights have biases in the projections: qkv_bias=True.
"""

from __future__ import annotations

from typing import TypedDict

from torch import nn

from regard.attention.layer import MultiHeadAttention


class ModelSize(TypedDict):
    """The sizes of one model of a family."""

    num_layers: int
    d_model: int
    num_heads: int
    head_dim: int
    context_length: int
    vocab_size: int


def _size(num_layers: int, d_model: int, num_heads: int, context_length: int = 1024) -> ModelSize:
    return ModelSize(
        num_layers=num_layers,
        d_model=d_model,
        num_heads=num_heads,
        head_dim=d_model // num_heads,
        context_length=context_length,
        vocab_size=50257,
    )


GPT2_CONFIGS: dict[str, ModelSize] = {
    "gpt2-small": _size(12, 768, 12),
    "gpt2-medium": _size(24, 1024, 16),
    "gpt2-large": _size(36, 1280, 20),
    "gpt2-xl": _size(48, 1600, 25),
}
GPT3_CONFIG: ModelSize = _size(96, 12288, 96, context_length=2048)


def create_gpt2_small_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 small: 768 wide, 12 heads.

    >>> count_parameters(create_gpt2_small_attention())
    2360064
    """
    return _attention(GPT2_CONFIGS["gpt2-small"], dropout, qkv_bias)


def create_gpt2_medium_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 medium: 1024 wide, 16 heads."""
    return _attention(GPT2_CONFIGS["gpt2-medium"], dropout, qkv_bias)


def create_gpt2_large_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 large: 1280 wide, 20 heads."""
    return _attention(GPT2_CONFIGS["gpt2-large"], dropout, qkv_bias)


def create_gpt2_xl_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-2 XL: 1600 wide, 25 heads."""
    return _attention(GPT2_CONFIGS["gpt2-xl"], dropout, qkv_bias)


def create_gpt3_attention(dropout: float = 0.1, qkv_bias: bool = False) -> MultiHeadAttention:
    """One attention layer of GPT-3: 12288 wide, 96 heads; 2.4 GB in float32. `with torch.device("meta"):` costs none."""
    return _attention(GPT3_CONFIG, dropout, qkv_bias)


def count_parameters(module: nn.Module) -> int:
    """How many numbers a module learns; a parameter used twice counts once."""
    return sum(p.numel() for p in module.parameters())


def _attention(size: ModelSize, dropout: float, qkv_bias: bool) -> MultiHeadAttention:
    return MultiHeadAttention(
        d_in=size["d_model"],
        d_out=size["d_model"],
        context_length=size["context_length"],
        dropout=dropout,
        num_heads=size["num_heads"],
        qkv_bias=qkv_bias,
    )
