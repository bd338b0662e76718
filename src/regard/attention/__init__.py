"""Attention: the formula and the layer around it.

masks, positions → attend (fused, and in steps) → layer. observers and explain say what attend does; cache keeps keys
and values; kernels/ measures the weights that attend never writes out.
"""
