"""Attention: masks and positions, the formula and its fast routes, the layer around it, and its cache."""
