"""What is followed the first time only: following every function of a model takes time.

The functions of a model are recorded, as its texts, heads or queries may be elsewhere than is usual, and the rows of
its tensors are followed, until it ran once, called in the same form, and sizes alone would have told the same. So a
report depends on the model and its input, and not on what ran before.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.heads.calls.call import Args, Kwargs
from regard.heads.inputs.row_functions import may_be_text


class What(Enum):
    """What is followed."""

    ROWS = "which argument the rows of a tensor come from"
    AXES = "how the axes of a tensor were made"


class FollowedForm(NamedTuple):
    """How a model is called: with which sizes and switches."""

    module: nn.Module
    key: Hashable


# By id() of the model: what was not needed in which form, and the functions that moved rows meanwhile.
_Known = dict[tuple[What, Hashable], frozenset[str]]
_unneeded: dict[int, tuple[weakref.ref[nn.Module], _Known]] = {}


def _known(module: nn.Module) -> _Known:
    entry = _unneeded.get(id(module))
    return entry[1] if entry is not None and entry[0]() is module else {}


def moves_without_need(form: FollowedForm, what: What) -> frozenset[str] | None:
    """None where this is to be followed; otherwise the functions that moved rows in a forward that did not need it."""
    return _known(form.module).get((what, form.key))


def remember_as_unneeded(form: FollowedForm, what: What, moves: frozenset[str] = frozenset()) -> None:
    key = id(form.module)
    known = {**_known(form.module), (what, form.key): moves}
    _unneeded[key] = weakref.ref(form.module, lambda _: _unneeded.pop(key, None)), known


def forget(form: FollowedForm) -> None:
    """The model does something else than before in this form."""
    for what in What:
        _known(form.module).pop((what, form.key), None)


def call_form(module: nn.Module, names: Sequence[str], args: Args, kwargs: Kwargs) -> FollowedForm:
    """names: of its positional arguments."""

    def kind(name: str, value: object) -> Hashable:
        if isinstance(value, Tensor):  # masks and positions grow with every token that is generated
            return (value.is_nested or tuple(value.shape)) if may_be_text(name, value) else value.dim()
        return value if isinstance(value, (bool, str, int, float)) else ("of type", type(value).__qualname__)

    named = (*zip((*names, *("" for _ in args[len(names) :])), args, strict=False), *kwargs.items())
    modes = (module.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    return FollowedForm(module, (modes, len(args), *((name, kind(name, value)) for name, value in named)))
