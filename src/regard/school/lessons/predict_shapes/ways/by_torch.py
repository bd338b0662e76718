import torch


def project(B, T, E, H):
    """W_query(x), with d_out = E."""
    return tuple(torch.nn.Linear(E, E)(torch.zeros(B, T, E)).shape)


def split(B, T, E, H):
    """The queries, cut into heads by view."""
    return tuple(torch.zeros(B, T, E).view(B, T, H, -1).shape)


def transpose(B, T, E, H):
    """The heads before the tokens, by transpose(1, 2)."""
    return tuple(torch.zeros(split(B, T, E, H)).transpose(1, 2).shape)


def scores(B, T, E, H):
    """q @ k.mT, of the transposed queries and keys."""
    q = k = torch.zeros(transpose(B, T, E, H))
    return tuple((q @ k.mT).shape)


def merge(B, T, E, H):
    """The context of all heads, transposed back and joined by view."""
    context = torch.zeros(transpose(B, T, E, H))
    return tuple(context.transpose(1, 2).flatten(2).shape)
