"""Attention you can read, see, check and ship."""

from regard.attend import attend, attend_in_steps, explain
from regard.cache import Cache
from regard.layer import MultiHeadAttention
from regard.masks import Mask, causal, dense, documents, padding, window
from regard.positions import Rotary, alibi_slopes, sinusoidal
from regard.steps import step, trace

__all__ = [
    "Cache",
    "Mask",
    "MultiHeadAttention",
    "Rotary",
    "alibi_slopes",
    "attend",
    "attend_in_steps",
    "causal",
    "dense",
    "documents",
    "explain",
    "padding",
    "sinusoidal",
    "step",
    "trace",
    "window",
]
