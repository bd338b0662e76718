"""Broken: it cannot be built."""

import torch

from regard.school.exercises import Function, Layer, Wrong


def arguments(random):
    return tuple(torch.tensor([2, 3, 5, 7])[torch.randperm(4, generator=random)][:2].tolist())


parts = [
    Function(
        "parameters",
        arguments,
        right=lambda d_in, d_out: {f"W_{name}.weight": [d_out, d_in] for name in ("query", "key", "value")},
        wrong=[
            Wrong(
                "super().__init__() missing",
                "A layer is assigned to self before super().__init__() was called.",
                raises="Module.__init__() call",
                why="nn.Module.__init__ makes the place where torch keeps layers and parameters. It must run first.",
            ),
            Wrong(
                "not a module",
                "The class is no nn.Module any more, so torch finds no parameters in it.",
                raises="no attribute 'named_parameters'",
                why="The error is gone, and so is everything that nn.Module does: training, moving and saving the layer.",
            ),
            Wrong(
                "arguments for nn.Module",
                "super().__init__ gets arguments; nn.Module.__init__ takes none.",
                raises="positional argument",
                why="d_in and d_out are this layer's own; its parent knows nothing about them.",
            ),
            Wrong(
                "layers outside",
                "The layer is built, but torch finds no parameters in it: the projections are not assigned to self.",
                lambda d_in, d_out: {},
            ),
        ],
    ),
    Layer("SelfAttention", causal=False),
]
