"""Stand-ins for what could not be imported or computed: a class that only mentions one can be defined.

Whatever needs the value itself fails with `Unavailable`, which says what is missing.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

_REFUSED = (
    *("call", "iter", "next", "len", "contains", "bool", "int", "float", "index", "mro_entries", "instancecheck"),
    *("enter", "exit", "setitem", "lt", "le", "gt", "ge", "neg", "array", "fspath", "format", "round", "abs"),
    *(f"{side}{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and")
      for side in ("", "r")),
)  # fmt: skip


STAND_IN = re.compile("StandIn⟨(.*?)⟩", re.DOTALL)  # in a message: the name of its type, with what is missing


class Unavailable(ImportError):
    """Something that is not here was needed; the message says what."""


def stand_in(why: str) -> StandIn:
    """A stand-in; `why` completes "it needs …". Its type has it in its name, which torch shows in its own errors."""
    kind: type[StandIn] = type(f"StandIn⟨{why}⟩", (StandIn,), {"_why": why})
    return kind()


class StandIn:
    """In place of a value that is missing."""

    _why = ""

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):  # whoever asks for a protocol gets the answer no
            raise AttributeError(name)
        return self

    def _self(self, *_: Any) -> StandIn:
        """Of annotations, such as Float[Tensor, "B T"] and A | B."""
        return self

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Unavailable(self._why)

    __getitem__ = __or__ = __ror__ = _self


for _name in _REFUSED:
    setattr(StandIn, f"__{_name}__", StandIn._refuse)


class Quiet:
    """In place of IPython's shell: it does nothing, whatever it is asked."""

    def __getattr__(self, name: str) -> Quiet:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Quiet:
        return self
