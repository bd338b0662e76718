"""Blocks: how attention, feed-forward and norms are joined, and what in a block or a stack has no effect."""
