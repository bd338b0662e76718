import torch


def project(B, T, E, H):
    """W_query(x), with d_out = E."""
    return (B, T, E)


def split(B, T, E, H):
    """The queries, cut into heads by view."""
    return (B, T, H, E // H)


def transpose(B, T, E, H):
    """The heads before the tokens, by transpose(1, 2)."""
    return (B, H, T, E // H)


def scores(B, T, E, H):
    """q @ k.mT, of the transposed queries and keys."""
    return (B, H, T, T)


def merge(B, T, E, H):
    """The context of all heads, transposed back and joined by view."""
    return (B, T, E)
