"""Predict the shape, five at a time.

For x (4, 100, 768) and 12 heads, the five shapes are

    project    (4, 100, 768)        split     (4, 100, 12, 64)
    transpose  (4, 12, 100, 64)     scores    (4, 12, 100, 100)
    merge      (4, 100, 768)

Write each for any sizes: B texts of T tokens, width E, H heads. Return a
tuple. It is checked with other sizes every time, so no number will do.
Who can do this finds many mistakes before running anything.
"""

import torch


def project(B, T, E, H):
    """W_query(x), with d_out = E."""
    return ...


def split(B, T, E, H):
    """The queries, cut into heads by view."""
    return ...


def transpose(B, T, E, H):
    """The heads before the tokens, by transpose(1, 2)."""
    return ...


def scores(B, T, E, H):
    """q @ k.mT, of the transposed queries and keys."""
    return ...


def merge(B, T, E, H):
    """The context of all heads, transposed back and joined by view."""
    return ...
