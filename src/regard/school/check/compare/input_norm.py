"""Norms: a layer that normalises x before it projects it, as many do, is compared with the formula on that x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor


class FirstNorm(NamedTuple):
    """A norm over the width of x: with a bias, or with a weight only, which may be an RMSNorm."""

    weight: Tensor
    bias: Tensor | None
    is_rms: bool

    def __call__(self, x: Tensor) -> Tensor:
        if self.is_rms:
            return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, eps=1e-6)
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias)


def find_norm(contents: Mapping[str, Any], weights: Mapping[str, Tensor], d_in: int) -> FirstNorm | None:
    """The only norm of a layer that fits x; None where there is none, or several."""
    owners = {p["name"]: p["owner"] for p in contents.get("parameters", ()) if p["shape"] == [d_in]}
    names = [n for n, owner in owners.items() if owner.endswith("Norm") and n.endswith("weight") and n in weights]
    if len(names) != 1:
        return None
    bias = weights.get(names[0].removesuffix("weight") + "bias")
    return FirstNorm(weights[names[0]], bias, owners[names[0]].endswith("RMSNorm"))
