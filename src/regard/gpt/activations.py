"""The activations that a feed-forward may have: one table for the modules, the CPU decoder and the GPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

FeedForwardName = Literal["gelu", "gelu_exact", "swiglu"]


@dataclass(frozen=True)
class Activation:
    """The function between the two products of a feed-forward.

    name: what `activate` in generate/gpu_kernels.py calls the same function.
    gated: function(gate(x)) · up(x) instead of function(up(x)).
    """

    name: str
    function: Callable[[Tensor], Tensor]
    gated: bool = False


# By the names that GPTConfig.feed_forward takes.
ACTIVATIONS: dict[FeedForwardName, Activation] = {
    "gelu": Activation("gelu", partial(F.gelu, approximate="tanh")),  # arXiv:1606.08415; GPT-2 uses the tanh form
    "gelu_exact": Activation("gelu_exact", F.gelu),  # x · Φ(x) without the approximation; nanoGPT
    "swiglu": Activation("silu", F.silu, gated=True),  # arXiv:2002.05202, section 2; Llama
}
