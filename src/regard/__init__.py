"""Attention you can read, see, check and ship."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import the public names, and with them torch, when the first is used: `regard --help` must not wait for torch."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    import torch

    with torch.device("cpu"):  # the first use may be inside `with torch.device("meta")`, and modules hold tensors
        public = import_module("regard.public")
    names = {"__all__": public.__all__} | {public_name: getattr(public, public_name) for public_name in public.__all__}
    globals().update(names)
    if name not in globals():  # submodules are here now, too
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return globals()[name]
