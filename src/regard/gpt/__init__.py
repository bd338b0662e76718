"""GPT: the whole pipeline, from text to text."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.gpt.config import PRESETS, GPTConfig
    from regard.gpt.model import GPT
    from regard.gpt.train.fit import fit

_HOMES = {"GPT": "model", "PRESETS": "config", "GPTConfig": "config", "fit": "train.fit"}

__all__ = ["GPT", "PRESETS", "GPTConfig", "fit"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the options of `regard train` are read without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"regard.gpt.{_HOMES[name]}"), name)
    return value
