"""Broken: view after transpose."""

from regard.school.exercises import Layer

parts = [Layer("MultiHeadAttention", causal=False)]
