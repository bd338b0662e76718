"""The formula of attention in exchangeable steps, in float64 and from explicit weights.

`Formula()` is right. `Formula(scale=…)` has one step exchanged for another, which is how a mistake is simulated: a layer
that gives the same numbers makes the same mistake, however it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class Projection(NamedTuple):
    """A linear map: weight (out, in), and a bias or none."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Given:
    """What a layer works on: its input, its weights and what it should do with them."""

    x: Tensor  # (B, T, d_in)
    projections: Mapping[str, Projection] = field(default_factory=dict)  # W_query, W_key, W_value, out_proj, if any
    num_heads: int = 1
    causal: bool = False
    scaled: bool = True

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.width // self.num_heads

    @property
    def width(self) -> int:
        """The width of the queries of all heads."""
        return len(self.projections["W_query"].weight) if self.projections else self.x.shape[-1]

    def visible(self) -> Tensor:
        """(T, T), True = may attend."""
        T = self.x.shape[1]
        everything = torch.ones(T, T, dtype=torch.bool)
        return everything.tril() if self.causal else everything


# The right steps. Each takes what the step before it made, and the layer's task.


def project(given: Given) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, (B, T, width)."""
    if not given.projections:
        return given.x, given.x, given.x
    q, k, v = (given.projections[name](given.x) for name in ("W_query", "W_key", "W_value"))
    return q, k, v


def split(t: Tensor, given: Given) -> Tensor:
    """(B, T, heads × D) as (B, heads, T, D)."""
    return t.unflatten(-1, (-1, given.head_dim)).transpose(1, 2)


def share(t: Tensor, given: Given) -> Tensor:
    """Key heads as query heads need them: each for the query heads that stand together."""
    return t.repeat_interleave(given.num_heads // t.shape[1], dim=1)


def scale(scores: Tensor, given: Given) -> Tensor:
    """Divided by √head_dim; the simplified rung does not scale."""
    return scores / given.head_dim**0.5 if given.scaled else scores


def see(given: Given) -> Tensor:
    """Which keys a query may see, (T, T)."""
    return given.visible()


def hide(scores: Tensor, visible: Tensor) -> Tensor:
    """Weights (B, H, T, S) of the scores: hidden ones are −∞ before the softmax."""
    return scores.masked_fill(~visible, -torch.inf).softmax(-1)


def merge(context: Tensor, given: Given) -> Tensor:
    """(B, H, T, D) as (B, T, H × D)."""
    return context.transpose(1, 2).flatten(2)


def output(concat: Tensor, given: Given) -> Tensor:
    """Through the output projection, where the layer has one."""
    return given.projections["out_proj"](concat) if "out_proj" in given.projections else concat


@dataclass(frozen=True)
class Formula:
    """The ten steps, right unless given."""

    project: Callable[[Given], tuple[Tensor, Tensor, Tensor]] = project
    split: Callable[[Tensor, Given], Tensor] = split
    share: Callable[[Tensor, Given], Tensor] = share
    scale: Callable[[Tensor, Given], Tensor] = scale
    see: Callable[[Given], Tensor] = see
    hide: Callable[[Tensor, Tensor], Tensor] = hide
    merge: Callable[[Tensor, Given], Tensor] = merge
    output: Callable[[Tensor, Given], Tensor] = output

    def steps(self, given: Given) -> dict[str, Tensor]:
        """Every tensor on the way from x to out, by its name."""
        queries, keys, values = self.project(given)
        q, k, v = (self.split(t, given) for t in (queries, keys, values))
        k, v = self.share(k, given), self.share(v, given)
        scores = q @ k.mT
        scaled = self.scale(scores, given)
        weights = self.hide(scaled, self.see(given))
        context = weights @ v
        concat = self.merge(context, given)
        return {
            "queries": queries,
            "keys": keys,
            "values": values,
            "scores": scores,
            "scaled": scaled,
            "weights": weights,
            "context": context,
            "concat": concat,
            "out": self.output(concat, given),
        }

    def __call__(self, given: Given) -> Tensor:
        """The output, (B, T, d_out)."""
        return self.steps(given)["out"]
