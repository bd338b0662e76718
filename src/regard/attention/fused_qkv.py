"""Queries, keys and values: three projections, as one matrix product where that is faster.

On a GPU one product is faster than three while the weights are small enough to be copied together for it. Hooks,
adapters and replaced modules are respected: only three plain nn.Linear are ever multiplied as one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.linear import is_plain, linear
from regard.steps import step

COPIED = 32 * 2**20  # bytes of weights that are copied together; larger ones are multiplied where they are


def project_qkv(
    W_query: nn.Module, W_key: nn.Module, W_value: nn.Module, x: Tensor, context: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of x, keys and values of `context` (of x where there is none)."""
    if context is None and (projections := _fusable(x, W_query, W_key, W_value)):
        weight = torch.cat([m.weight for m in projections])
        bias = None if projections[0].bias is None else torch.cat([m.bias for m in projections])
        q, k, v = F.linear(x, weight, bias).split_with_sizes([m.out_features for m in projections], dim=-1)
    else:
        source = x if context is None else step("context x", context, "context")
        q, k, v = linear(W_query, x), linear(W_key, source), linear(W_value, source)
    name = "x" if context is None else "context x"
    q = step("queries", q, "W_query(x)")
    k = step("keys", k, f"W_key({name})")
    v = step("values", v, f"W_value({name})")
    return q, k, v


def _fusable(x: Tensor, *projections: nn.Module) -> list[nn.Linear]:
    """The projections, if one product with all their weights does the same and is faster; else none."""
    plain = [m for m in projections if is_plain(m)]
    same_biases = len({m.bias is None for m in plain}) == 1
    if len(plain) < len(projections) or not same_biases or not _copy_pays_off(x, sum(m.weight.nbytes for m in plain)):
        return []
    return plain


def _copy_pays_off(x: Tensor, nbytes: int) -> bool:
    return x.is_cuda and nbytes <= COPIED
