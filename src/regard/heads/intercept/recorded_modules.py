"""Which modules are recorded: those whose attention may have its texts, heads or queries elsewhere than is usual.

Recording the functions of a module takes time. A module that ran once without a doubt is not recorded again.
"""

from __future__ import annotations

import weakref

from torch import nn

# Modules that ran without attention, or with texts, heads, queries and keys in this order: they are not recorded again.
_ordinary: dict[int, weakref.ref[nn.Module]] = {}  # by id()


def is_ordinary(module: nn.Module) -> bool:
    """Did the module run before without attention that leaves a doubt?"""
    known = _ordinary.get(id(module))
    return known is not None and known() is module


def remember_as_ordinary(module: nn.Module) -> None:
    key = id(module)
    _ordinary[key] = weakref.ref(module, lambda _: _ordinary.pop(key, None))


def forget_ordinary(module: nn.Module) -> None:
    """What this module does is in doubt."""
    _ordinary.pop(id(module), None)
