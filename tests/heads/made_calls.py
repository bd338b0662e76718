"""Watched calls for tests, made of the fields of an attention and of its origin."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from regard.attention.call import QK, Call
from regard.heads.calls.call import Origin, OwnWeights, WatchedCall, changed
from regard.heads.calls.visibility import mask_written_out

_ORIGIN = {field.name for field in fields(Origin)}


def made_call(module: str = "", lse: Tensor | None = None, **values: Any) -> WatchedCall:
    """A call of this module; values: fields of QK, Call or OwnWeights, and of Origin."""
    origin = Origin(module, **{name: value for name, value in values.items() if name in _ORIGIN})
    numbers = {name: value for name, value in values.items() if name not in _ORIGIN}
    if "weights" in numbers:  # of weights that come written out, a hidden one is told by its 0
        numbers.setdefault("mask", mask_written_out(numbers["weights"] > 0))
    kind = OwnWeights if "weights" in numbers else Call if "v" in numbers else QK
    return WatchedCall(kind(**numbers), origin, lse)


def moved_call(call: WatchedCall, device: torch.device | str) -> WatchedCall:
    """The same call with its tensors on another device."""

    def moved(value: Any) -> Any:
        return changed(value, **{n: t.to(device) for n, t in vars(value).items() if isinstance(t, Tensor)})

    return changed(moved(call), attention=moved(call.attention), origin=moved(call.origin))
