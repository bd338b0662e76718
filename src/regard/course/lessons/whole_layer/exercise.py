"""The whole layer: multi-head attention in ten steps."""

from regard.exercises import Layer

parts = [Layer("MultiHeadAttention", causal=True)]
