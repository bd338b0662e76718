"""The registry of interception paths: each is a file of this folder that registers itself here when it is imported.

A path handles torch functions by name, replaces attributes of torch while a model is watched, or wraps its forward.
intercept.py imports all paths.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from regard.heads.intercept.torch_patches import Patch
from regard.support.scoped import Scoped

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

# (interceptor, function, args, kwargs) → what the function returns
Handler = Callable[["Interceptor", Any, tuple[Any, ...], dict[str, Any]], Any]

HANDLERS: dict[str, Handler] = {}  # by name of the torch function
ATTENTION: set[str] = (
    set()
)  # functions that matter also where no tensor is followed: attention, and what it may begin with
PATCHES: list[Patch] = []  # attributes of torch that are replaced while a model is watched
AROUND_FORWARD: list[Callable[[Interceptor], AbstractContextManager[Any]]] = []  # blocks that a watched forward runs in

current_interceptor = Scoped["Interceptor"]("regard_interceptor")


def handles(*names: str, is_attention: bool = True) -> Callable[[Handler], Handler]:
    """Let a function handle these torch functions, while a watched model runs.

    is_attention: also where no tensor is followed yet.
    """

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        ATTENTION.update(names if is_attention else ())
        return handler

    return register


def active_interceptor() -> Interceptor | None:
    """The interceptor of this thread while a watched model runs, but not while it runs a callback."""
    interceptor = current_interceptor.get()
    return interceptor if interceptor is not None and not interceptor.in_callback and interceptor.running else None
