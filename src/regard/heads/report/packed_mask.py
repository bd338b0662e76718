"""A mask of a file: a bit for each query and key, written out as a tensor only when somebody asks for it."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from regard.attention.masks import Dense


class PackedMask(Dense):
    """A dense mask that is kept as bits, eight to a byte.

    >>> mask = PackedMask(packed_bits(torch.tensor([[True, False], [True, True]])), (2, 2))
    >>> mask.seen
    tensor([[ True, False],
            [ True,  True]])
    """

    def __init__(self, bits: Tensor, shape: tuple[int, ...]) -> None:
        self.__dict__.update(_bits=bits, _shape=shape)  # a Dense is frozen

    @cached_property
    def seen(self) -> Tensor:
        """The mask as a bool tensor."""
        bits: Tensor = self.__dict__["_bits"]
        count = math.prod(self.shape)
        flat = np.unpackbits(bits.cpu().numpy(), count=count, bitorder="little")
        return torch.from_numpy(flat).view(torch.bool).reshape(self.shape).to(bits.device)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as a tensor."""
        shape: tuple[int, ...] = self.__dict__["_shape"]
        return shape

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"dense{self.shape}"

    def check(self, B: int, H: int, T: int, S: int) -> None:
        """Does it fit these weights? By its shape alone."""
        Dense(torch.empty(self.shape, dtype=torch.bool, device="meta")).check(B, H, T, S)


def packed_bits(seen: Tensor) -> Tensor:
    """A bool tensor as bits, eight to a byte.

    >>> packed_bits(torch.tensor([True, False, True]))
    tensor([5], dtype=torch.uint8)
    """
    packed = np.packbits(seen.detach().cpu().flatten().numpy(), bitorder="little")
    return torch.from_numpy(packed).to(seen.device)
