"""The whole layer in ten steps."""

from regard.school.exercises import Layer

parts = [Layer("MultiHeadAttention", causal=True, plain=True)]
