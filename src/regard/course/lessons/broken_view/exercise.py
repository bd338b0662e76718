"""Broken: view after transpose."""

from regard.exercises import Layer

parts = [Layer("MultiHeadAttention", causal=False)]
