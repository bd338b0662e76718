"""Checking: what a layer that somebody wrote does, and the name of its mistake."""
