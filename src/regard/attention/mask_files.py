"""Masks in files: which function makes a kind of mask again, from the values that a file has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from regard.attention.mask import EVERYTHING, And, Everything, Mask, Not, Or, Padding, padding

MAKERS: dict[str, Callable[..., Mask]] = {}  # by the kind's name in files
Maker = TypeVar("Maker", bound=Callable[..., Mask])


def makes(kind: type[Mask]) -> Callable[[Maker], Maker]:
    """Files have masks of this kind as a rule: its name and its values, from which the function makes it again.

    The function is called with the masks inside it, in order, then with its other values by name: whole numbers from 0
    and tensors, which nobody vouches for. It checks them, and raises ValueError.
    """

    def register(make: Maker) -> Maker:
        kind.file_kind = kind.__name__.lower()
        MAKERS[kind.file_kind] = make
        return make

    return register


makes(Everything)(lambda: EVERYTHING)
makes(Padding)(padding)
for _kind in (And, Or, Not):
    makes(_kind)(_kind)
