"""The statistics of heads: their registry, and computing them."""
