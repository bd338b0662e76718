"""Broken: it cannot be built."""

import torch

from regard.school.exercises import Function, Layer, Wrong, cat


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
                "A layer is assigned to self before nn.Module.__init__ has run.",
                raises="Module.__init__() call",
                why="nn.Module.__init__ makes the place where torch keeps layers and parameters. It must run first.",
            ),
            Wrong(
                "not a module",
                "The class is no nn.Module any more, so torch finds no parameters in it.",
                raises="no attribute 'named_parameters'",
                why="The error is gone, and so is everything that nn.Module does: training, moving and saving "
                "the layer.",
            ),
            Wrong(
                "self missing",
                "nn.Module.__init__ is called without self: super().__init__() hands it over by itself.",
                raises="positional argument: 'self'",
            ),
            Wrong(
                "its own constructor",
                "self.__init__ is this constructor itself; that of nn.Module is super().__init__().",
                raises="missing 2 required positional arguments",
            ),
            Wrong(
                "not super()",
                "super is a function: super().__init__(), with parentheses behind both.",
                raises="'super' object needs an argument",
            ),
            Wrong(
                "name misspelt",
                "That name is not __init__, with two underscores before and behind.",
                raises="'super' object has no attribute",
            ),
            Wrong(
                "half of nn.Module",
                "nn.Module.__init__ makes several lists, for layers, parameters and more; one made by hand is "
                "not enough.",
                raises="has no attribute '_parameters'",
            ),
            Wrong(
                "biases added",
                "The projections have biases now; they had none.",
                lambda d_in, d_out: {
                    f"W_{name}.{one}": [d_out, d_in][: 2 if one == "weight" else 1]
                    for name in ("query", "key", "value")
                    for one in ("weight", "bias")
                },
            ),
            Wrong(
                "sizes exchanged",
                "d_in and d_out are exchanged: nn.Linear(in, out) keeps a weight of (out, in).",
                lambda d_in, d_out: {f"W_{name}.weight": [d_in, d_out] for name in ("query", "key", "value")},
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

picture = cat.of_layer("SelfAttention", "It can be built, so it can look:", (11, 6), heads=1)
