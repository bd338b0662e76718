"""Broken: view after transpose."""

from regard.school.exercises import Layer, cat

parts = [Layer("MultiHeadAttention", causal=False)]

picture = cat.of_layer("MultiHeadAttention", "Mended, each word has its own heads side by side:", (11, 12, 2))
