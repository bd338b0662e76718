"""explain: which route a layer's attention takes, which kernel runs, and why not a faster one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from regard.attention.call import Call
from regard.attention.formula import IN_STEPS
from regard.attention.observers import Route, observe
from regard.attention.routes import FUSED, FUSED_CAUSAL, FUSED_CAUSAL_KEYS, masked_kernels, same_width
from regard.support.arguments import name_of
from regard.support.super_init import check_initialised, missing_init_explained


@dataclass(frozen=True)
class Explanation:
    """The route of every attention call, the kernel that ran, and why no faster one did."""

    calls: tuple[tuple[Route, str, str], ...]  # route, kernel, sizes

    @property
    def path(self) -> str:
        """The route of the first call."""
        return self.calls[0][0].name

    def __str__(self) -> str:
        return "\n".join(
            f"{r.name} · {sizes}\n  kernel  {kernel}\n  why     {r.why}" for r, kernel, sizes in self.calls
        )

    __repr__ = __str__


def explain(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Explanation:
    """Run the module once and say which route its attention takes, and why not a faster one.

    >>> from regard import MultiHeadAttention
    >>> layer = MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    >>> print(explain(layer, torch.randn(1, 5, 8)))
    fused causal · B=1 H=2 T=5 S=5 D=4 float32 on cpu
      kernel  SDPA flash attention
      why     no mask tensor: the kernel skips the future by itself
    """
    check_initialised(module)
    calls: list[tuple[Route, str, str]] = []

    def note(call: Call, route: Route) -> None:
        q, (B, H, T, S) = call.q, call.sizes
        sizes = f"B={B} H={H} T={T} S={S} D={q.shape[3]} {name_of(q.dtype)} on {q.device.type}"
        calls.append((route, _kernel(call, route), sizes))

    with missing_init_explained(), observe(note):
        module(*args, **kwargs)
    if not calls:
        rule = "explain() supports regard's own layers only; regard.adopt(module) makes one of most attention modules"
        raise ValueError(f"{type(module).__name__} made no call of regard.attend(); {rule}")
    return Explanation(tuple(calls))


def _kernel(call: Call, route: Route) -> str:
    """The kernel that SDPA chooses for this route."""
    if route == IN_STEPS:
        return "none: plain tensor operations"
    q, k, v = same_width(*call.qkv)
    if q.is_meta:
        return "SDPA"
    if route == FUSED_CAUSAL_KEYS:
        q, k, v = (F.pad(t, (0, 8)) for t in (q, k, v))
    causal = route in (FUSED_CAUSAL, FUSED_CAUSAL_KEYS)
    is_masked = not causal and route != FUSED
    mask = q.new_ones(1, 1, 1, 1, dtype=torch.bool).expand(1, 1, q.shape[2], k.shape[2]) if is_masked else None
    with masked_kernels(q) if is_masked else nullcontext():
        number = int(torch._fused_sdp_choice(q, k, v, mask, call.dropout, causal, enable_gqa=q.shape[1] != k.shape[1]))
    names = {0: "math (T × S in memory)", 1: "flash attention", 2: "memory-efficient attention", 3: "cuDNN attention"}
    kernel = "SDPA " + names.get(number, "default")
    if number == 0 and call.dropout and q.device.type == "cpu":
        kernel += ": the CPU's fused kernel has no dropout; call .eval() or build the layer with dropout=0.0"
    return kernel
