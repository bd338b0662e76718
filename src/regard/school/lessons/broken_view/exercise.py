"""Broken: view after transpose."""

from regard.school.exercises import Layer, cat
from regard.school.exercises.layer_slips import SLIPS

parts = [Layer("MultiHeadAttention", causal=False, mistakes=SLIPS)]

picture = cat.of_layer("MultiHeadAttention", "Mended, each word has its own heads side by side:", (11, 12, 2))
