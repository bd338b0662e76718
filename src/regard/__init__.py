"""Attention you can read, see, check and ship."""

from regard.adopt import adopt
from regard.attend import attend, attend_in_steps
from regard.cache import Cache
from regard.explain import explain
from regard.gpt import GPT, GPTConfig
from regard.layer import MultiHeadAttention
from regard.masks import Mask, causal, dense, documents, padding, window
from regard.positions import Rotary, alibi_slopes, sinusoidal
from regard.presets import (
    GPT2_CONFIGS,
    GPT3_CONFIG,
    count_parameters,
    create_gpt2_large_attention,
    create_gpt2_medium_attention,
    create_gpt2_small_attention,
    create_gpt2_xl_attention,
    create_gpt3_attention,
)
from regard.steps import Trace, step, trace
from regard.watch import Seen, load_seen, watch

__all__ = [
    "GPT",
    "GPT2_CONFIGS",
    "GPT3_CONFIG",
    "Cache",
    "GPTConfig",
    "Mask",
    "MultiHeadAttention",
    "Rotary",
    "Seen",
    "Trace",
    "adopt",
    "alibi_slopes",
    "attend",
    "attend_in_steps",
    "causal",
    "count_parameters",
    "create_gpt2_large_attention",
    "create_gpt2_medium_attention",
    "create_gpt2_small_attention",
    "create_gpt2_xl_attention",
    "create_gpt3_attention",
    "dense",
    "documents",
    "explain",
    "load_seen",
    "padding",
    "sinusoidal",
    "step",
    "trace",
    "watch",
    "window",
]
