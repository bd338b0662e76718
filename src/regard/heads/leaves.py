"""Modules of torch.nn that make no attention, whatever they are called with.

Half of the modules that a model calls are such leaves. They are called without bookkeeping, and without our function mode
where no tensor is followed: the mode would take longer than many of them do.
"""

from __future__ import annotations

from torch import nn

LEAVES = {
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Dropout, nn.Identity),
    *(nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Conv1d, nn.Conv2d),
}


def is_leaf(module: nn.Module) -> bool:
    """Is this a module of torch.nn that makes no attention, and not a subclass of one?

    >>> is_leaf(nn.Linear(3, 5)), is_leaf(nn.Softmax(-1)), is_leaf(nn.Sequential(nn.Linear(3, 5)))
    (True, False, False)
    """
    return type(module) in LEAVES and "forward" not in module.__dict__
