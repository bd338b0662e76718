"""Modules that make no attention, whatever they are called with: some of torch.nn and of transformers.

More than half of the modules that a model calls are such leaves. They are called without bookkeeping, and without our
function mode where no tensor is followed: the mode would take longer than many of them do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import nn

LEAVES = {
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Dropout, nn.Identity),
    *(nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Conv1d, nn.Conv2d),
}
# Those of transformers by their names, so that it need not be imported.
NAMES = {
    "transformers.pytorch_utils.Conv1D",
    *(f"transformers.activations.{name}" for name in ("NewGELUActivation", "GELUActivation", "SiLUActivation")),
    *(
        f"transformers.models.{name.lower()}.modeling_{name.lower()}.{name}RMSNorm"
        for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3")
    ),
}


def is_leaf(module: nn.Module) -> bool:
    """Is this one of the modules above, and not a subclass of one?

    >>> is_leaf(nn.Linear(3, 5)), is_leaf(nn.Softmax(-1)), is_leaf(nn.Sequential(nn.Linear(3, 5)))
    (True, False, False)
    """
    kind: Any = type(module)
    return _are_leaves(kind) and "forward" not in module.__dict__


@lru_cache(maxsize=1024)
def _are_leaves(kind: Any) -> bool:
    return kind in LEAVES or f"{kind.__module__}.{kind.__qualname__}" in NAMES
