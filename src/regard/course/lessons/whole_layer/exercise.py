"""The whole layer in ten steps."""

from regard.exercises import Layer

parts = [Layer("MultiHeadAttention", causal=True)]
