"""The whole layer in ten steps."""

from regard.school.exercises import cat
from regard.school.exercises import Layer
from regard.school.exercises.layer_slips import SLIPS

parts = [Layer("MultiHeadAttention", causal=True, plain=True, mistakes=SLIPS)]

picture = cat.of_layer(
    "MultiHeadAttention",
    "Two heads of your layer: head 0 asks who does it, head 1 where. Look at sat, and at mat:",
)
