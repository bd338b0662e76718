"""Visible patterns: windows, strides, dilations and blocks, as a number that the layer keeps says.

A pattern is what a layer means only if all of it follows from such a number, and the code is named after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_OF_NUMBERS = re.compile(r"(?i)window|sliding|local|band|span|radius|reach|strid|dilat|block|chunk|segment").search
_CAUSAL = re.compile(r"(?i)\bcausal\b").search
_BOTH_WAYS = re.compile(r"(?i)(non|not)[- _]?causal|bidirection|symmetric|causal\b\W{0,5}(bool|=|if)").search


def follows_pattern(visible: Tensor, attributes: Mapping[str, object], text: str, must_hide: bool = False) -> bool:
    """Is what a token sees, (T, T), a pattern of one of the layer's numbers that is named after it?"""
    is_causal = must_hide or (_CAUSAL(text) and not _BOTH_WAYS(text))
    if is_causal and bool(visible.triu(1).any()):
        return False
    numbers = [value for name, value in attributes.items() if type(value) is int and value > 0 and _OF_NUMBERS(name)]
    return any(torch.equal(visible, one) for n in numbers for one in _patterns(len(visible), n))


def _patterns(T: int, n: int) -> Iterator[Tensor]:
    """What may be seen by a pattern of n: near tokens, every n-th token, both, or those of one block; causal, too."""
    i = torch.arange(T)
    back = i[:, None] - i[None, :]
    near, stride, block = back.abs() < n, back % n == 0, i[:, None] // n == i[None, :] // n
    for one in (near, back.abs() <= n, back.abs() <= n // 2, stride, near | stride, block):
        yield one
        yield one & (back >= 0)
