"""GPT: the whole pipeline, from text to text."""

from typing import TYPE_CHECKING, Any

from regard.gpt.config import PRESETS, GPTConfig
from regard.gpt.model import GPT

if TYPE_CHECKING:
    from regard.gpt.train.fit import fit

__all__ = ["GPT", "PRESETS", "GPTConfig", "fit"]


def __getattr__(name: str) -> Any:
    """`fit` is loaded when it is first asked for: most who use a model do not train one."""
    if name == "fit":
        from regard.gpt.train.fit import fit

        return fit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
