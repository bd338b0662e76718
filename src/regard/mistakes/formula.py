"""The formula of attention in exchangeable steps, from explicit weights.

`Formula()` is right. `Formula(scale=…)` has one step exchanged for another, which is how a mistake is simulated:
a layer that gives the same numbers makes the same mistake, however it is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

LARGE = -1e9  # what people write for −∞; the same, except where a query may see nothing
QKV = ("W_query", "W_key", "W_value")
Known = dict[tuple[Any, ...], dict[str, Tensor]]  # steps by the functions that make them, for one case


class Projection(NamedTuple):
    """A linear map: weight (out, in), and a bias or none."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Case:
    """What a layer works on: its input, its weights, and what it should compute from them."""

    x: Tensor  # (B, T, d_in)
    projections: Mapping[str, Projection] = field(default_factory=dict)  # W_query, W_key, W_value, out_proj, if any
    num_heads: int = 1
    causal: bool = False
    scaled: bool = True  # the simplified rung does not scale
    qkv: tuple[Tensor, ...] | None = None  # queries, keys, values that come from outside, (B, T, width)
    mask: Tensor | None = None  # a mask that is passed to the layer, True = may attend
    filling: str = "-inf"  # how hidden scores are written: -inf, zero (0 for a row without keys), large, added
    bias: Tensor | None = None  # added to the scaled scores, (H, T, T)
    factor: float | None = None  # a number by which the code multiplies the scores, where it is none of the known ones

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.width // self.num_heads

    @property
    def width(self) -> int:
        """The width of the queries of all heads."""
        if self.qkv is not None:
            return self.qkv[0].shape[-1]
        if not self.projections:
            return self.x.shape[-1]
        rows = len(self.projections["W_query"].weight)
        return rows * self.num_heads if self.reads_pieces and rows * self.num_heads <= self.x.shape[-1] else rows

    @property
    def reads_pieces(self) -> bool:
        """Do the projections read a piece of x of the size of one head?"""
        columns = self.projections["W_query"].weight.shape[1] if self.projections else 0
        return self.num_heads > 1 and columns * self.num_heads == self.x.shape[-1]

    def visible(self) -> Tensor:
        """(T, T), True = may attend."""
        T = (self.x if self.qkv is None else self.qkv[0]).shape[1]
        everything = torch.ones(T, T, dtype=torch.bool)
        if self.mask is not None:
            return self.mask
        return everything.tril() if self.causal else everything


# The right steps. Each takes what the step before it made, and the case.


def project(case: Case) -> tuple[Tensor, ...]:
    """Queries, keys and values, (B, T, width)."""
    if case.qkv is not None:
        return case.qkv
    if not case.projections:
        return case.x, case.x, case.x
    return tuple(case.projections[name](case.x) for name in QKV)


def split(t: Tensor, case: Case) -> Tensor:
    """(B, T, heads × D) as (B, heads, T, D)."""
    heads: Tensor = t.unflatten(-1, (-1, case.head_dim))
    return heads.transpose(1, 2)


def share(t: Tensor, case: Case) -> Tensor:
    """Key heads as query heads need them: each for the query heads that stand together."""
    return t.repeat_interleave(max(1, case.num_heads // t.shape[1]), dim=1)


def scale(scores: Tensor, case: Case) -> Tensor:
    """Divided by √head_dim; the simplified rung does not scale."""
    return scores / case.head_dim**0.5 if case.scaled else scores


def hide(scores: Tensor, visible: Tensor, case: Case, dim: int = -1) -> Tensor:
    """Weights (B, H, T, S) of the scores: hidden ones are −∞ before the softmax."""
    if bool(visible.all()):
        return scores.softmax(dim)
    if case.filling == "added":
        return (scores + (~visible).to(scores.dtype) * LARGE).softmax(dim)
    weights = scores.masked_fill(~visible, LARGE if case.filling == "large" else -torch.inf).softmax(dim)
    return weights.nan_to_num(0.0) if case.filling == "zero" else weights


def merge(context: Tensor, case: Case) -> Tensor:
    """(B, H, T, D) as (B, T, H × D); heads that a wrong split left behind the tokens are there already."""
    return context.flatten(2) if context.shape[1] != case.num_heads else context.transpose(1, 2).flatten(2)


def output(concat: Tensor, case: Case) -> Tensor:
    """Through the output projection, where the layer has one."""
    return case.projections["out_proj"](concat) if "out_proj" in case.projections else concat


# Right as well, used together: the numbers of the heads alternate in every vector.


def split_alternating(t: Tensor, case: Case) -> Tensor:
    """(B, T, D × heads) as (B, heads, T, D)."""
    numbers: Tensor = t.unflatten(-1, (case.head_dim, -1))
    return numbers.permute(0, 3, 1, 2)


def merge_alternating(context: Tensor, case: Case) -> Tensor:
    """(B, H, T, D) as (B, T, D × H)."""
    return context.permute(0, 2, 3, 1).flatten(2)


@dataclass(frozen=True)
class Formula:
    """The steps, right unless given."""

    project: Callable[[Case], tuple[Tensor, ...]] = project
    split: Callable[[Tensor, Case], Tensor] = split
    share: Callable[[Tensor, Case], Tensor] = share
    scale: Callable[[Tensor, Case], Tensor] = scale
    see: Callable[[Case], Tensor] = Case.visible
    hide: Callable[[Tensor, Tensor, Case], Tensor] = hide
    merge: Callable[[Tensor, Case], Tensor] = merge
    output: Callable[[Tensor, Case], Tensor] = output

    def __call__(self, case: Case, known: Known | None = None) -> Tensor:
        """The output, (B, T, d_out)."""
        return self.steps(case, known)["out"]

    def steps(self, case: Case, known: Known | None = None) -> dict[str, Tensor]:
        """Every tensor on the way from x to out, by name; `known` keeps them for formulas that begin with the same."""
        functions = tuple(vars(self).values())
        stages = ((3, self._scores), (4, self._scaled), (6, self._weights), (7, self._concat), (8, self._out))
        known = {} if known is None else known
        made: dict[str, Tensor] = {}
        for number, stage in stages:  # what a stage makes depends on so many of the functions
            key = functions[:number]
            if key not in known:
                known[key] = made | stage(case, made)
            made = known[key]
        return made

    def _scores(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        queries, keys, values = self.project(case)
        q, k, v = (self.split(t, case) for t in (queries, keys, values))
        shared_k, shared_v = self.share(k, case), self.share(v, case)
        projected = {"queries": queries, "keys": keys, "values": values}
        heads = {"split": q, "split keys": k, "split values": v, "shared keys": shared_k, "shared values": shared_v}
        return {**projected, **heads, "scores": q @ shared_k.mT}

    def _scaled(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        scaled = self.scale(made["scores"], case)
        return {"scaled": scaled if case.bias is None else scaled + case.bias}

    def _weights(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        visible = self.see(case)
        weights = self.hide(made["scaled"], visible, case)
        return {"mask": visible, "weights": weights, "context": weights @ made["shared values"]}

    def _concat(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"concat": self.merge(made["context"], case)}

    def _out(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"out": self.output(made["concat"], case)}


RIGHT = (Formula(), Formula(split=split_alternating, merge=merge_alternating))
