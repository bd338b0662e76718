def project(B, T, E, H):
    """W_query(x), with d_out = E."""
    return (B, T, E)


def split(B, T, E, H):
    """The queries, cut into heads by view."""
    return *project(B, T, E, H)[:2], H, E // H


def transpose(B, T, E, H):
    """The heads before the tokens, by transpose(1, 2)."""
    B, T, H, D = split(B, T, E, H)
    return B, H, T, D


def scores(B, T, E, H):
    """q @ k.mT, of the transposed queries and keys."""
    *batch_and_heads, T, D = transpose(B, T, E, H)
    return *batch_and_heads, T, T


def merge(B, T, E, H):
    """The context of all heads, transposed back and joined by view."""
    return (B, T, E)
