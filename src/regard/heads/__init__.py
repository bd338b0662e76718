"""Heads: what every head of a model does, measured while the model runs."""
