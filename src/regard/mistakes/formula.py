"""The formula of attention in exchangeable steps, from explicit weights.

`Formula()` is right. `Formula(scale=…)` has one step exchanged for another, which is how a mistake is simulated:
a layer that gives the same numbers makes the same mistake, however it is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

LARGE = -1e9  # what people write for −∞; the same, except where a query may see nothing
QKV = ("W_query", "W_key", "W_value")
# Steps by the functions that make them, for one case; or why they cannot be made.
Known = dict[tuple[Any, ...], "dict[str, Tensor] | Exception"]


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
    mask: Tensor | None = None  # passed to the layer, True = may attend: (T, S), or for each text (B, 1, T or 1, S)
    filling: str = "-inf"  # how hidden scores are written: -inf, zero (0 for a row without keys), large, added
    bias: Tensor | None = None  # added to the scaled scores, (H, T, T)
    factor: float | None = None  # a number by which the code multiplies the scores, where it is none of the known ones
    source: Tensor | None = None  # (B, S, d_in): what keys and values are made of; x itself unless given

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
        """(T, S), True = may attend; (B, 1, T or 1, S) where the mask that is passed differs from text to text."""
        if self.mask is not None:
            return self.mask
        T = (self.x if self.qkv is None else self.qkv[0]).shape[1]
        S = T if self.source is None else self.source.shape[1]
        return _mask(T, S, self.causal)


@lru_cache(maxsize=64)
def _mask(T: int, S: int, causal: bool) -> Tensor:
    everything = torch.ones(T, S, dtype=torch.bool)
    return everything.tril() if causal else everything


# The right steps. Each takes what the step before it made, and the case.


def project(case: Case) -> tuple[Tensor, ...]:
    """Queries (B, T, width), keys and values (B, S, width)."""
    if case.qkv is not None:
        return case.qkv
    source = case.x if case.source is None else case.source
    if not case.projections:
        return case.x, source, source
    return tuple(case.projections[name](t) for name, t in zip(QKV, (case.x, source, source), strict=True))


def _check_width(t: Tensor, case: Case) -> None:
    """Raise an exception of Python's: one of torch's takes a millisecond, and a search meets thousands."""
    if t.shape[-1] % case.head_dim:
        raise ValueError(f"{t.shape[-1]} numbers are not heads of {case.head_dim}")


def split(t: Tensor, case: Case) -> Tensor:
    """(B, T, heads × D) as (B, heads, T, D)."""
    if case.num_heads > 1:
        _check_width(t, case)
    heads: Tensor = t.unflatten(-1, (-1, case.head_dim)) if case.num_heads > 1 else t.unsqueeze(-2)
    return heads.transpose(1, 2)


def share(t: Tensor, case: Case) -> Tensor:
    """Key heads as query heads need them: each for the query heads that stand together."""
    return t.repeat_interleave(max(1, case.num_heads // t.shape[1]), dim=1)


def scale(scores: Tensor, case: Case) -> Tensor:
    """Divided by √head_dim; the simplified rung does not scale."""
    return scores / case.head_dim**0.5 if case.scaled else scores


def compare_all(q: Tensor, k: Tensor, case: Case) -> Tensor:
    """Scores (B, H, T, S): every query with every key."""
    return q @ k.mT


def hide(scores: Tensor, visible: Tensor, case: Case) -> Tensor:
    """Scores whose hidden ones are −∞, or what is written for it."""
    if bool(visible.all()):
        return scores
    if case.filling == "added":
        return scores + (~visible).to(scores.dtype) * LARGE
    return scores.masked_fill(~visible, LARGE if case.filling == "large" else -torch.inf)


def normalise(scores: Tensor, case: Case, dim: int = -1) -> Tensor:
    """Weights (B, H, T, S): the softmax of the scores."""
    weights = scores.softmax(dim)
    return weights.nan_to_num(0.0) if case.filling == "zero" else weights


def mix_values(weights: Tensor, values: Tensor, case: Case) -> Tensor:
    """(B, H, T, D): values mixed by weights."""
    return weights @ values


def merge(context: Tensor, case: Case) -> Tensor:
    """(B, H, T, D) as (B, T, H × D)."""
    return context.transpose(1, 2).flatten(2)


def output(concat: Tensor, case: Case) -> Tensor:
    """Through the output projection, where the layer has one."""
    return case.projections["out_proj"](concat) if "out_proj" in case.projections else concat


# Right as well, used together: the numbers of the heads alternate in every vector.


def split_alternating(t: Tensor, case: Case) -> Tensor:
    """(B, T, D × heads) as (B, heads, T, D)."""
    _check_width(t, case)
    numbers: Tensor = t.unflatten(-1, (case.head_dim, -1))
    return numbers.permute(0, 3, 1, 2)


def merge_alternating(context: Tensor, case: Case) -> Tensor:
    """(B, H, T, D) as (B, T, D × H)."""
    return context.permute(0, 2, 3, 1).flatten(2)


def keep(made: Any, *others: Any) -> Any:
    """A step that changes nothing: where the formula has none, and people write one."""
    return made


@dataclass(frozen=True)
class Formula:
    """The steps, right unless given."""

    read: Callable[[Case], Case] = keep  # what the projections read
    project: Callable[[Case], tuple[Tensor, ...]] = project
    adapt: Callable[[tuple[Tensor, ...], Case], tuple[Tensor, ...]] = keep  # queries, keys and values
    split: Callable[[Tensor, Case], Tensor] = split
    share: Callable[[Tensor, Case], Tensor] = share  # keys
    share_values: Callable[[Tensor, Case], Tensor] = share
    compare: Callable[[Tensor, Tensor, Case], Tensor] = compare_all
    scale: Callable[[Tensor, Case], Tensor] = scale
    bend: Callable[[Tensor, Case], Tensor] = keep  # the scaled scores
    see: Callable[[Case], Tensor] = Case.visible
    hide: Callable[[Tensor, Tensor, Case], Tensor] = hide
    normalise: Callable[[Tensor, Case], Tensor] = normalise
    weigh: Callable[[Tensor, Tensor, Case], Tensor] = keep  # the weights, with what is visible
    attend: Callable[[Tensor, Tensor, Case], Tensor] = mix_values
    merge: Callable[[Tensor, Case], Tensor] = merge
    output: Callable[[Tensor, Case], Tensor] = output

    def __call__(self, case: Case, known: Known | None = None) -> Tensor:
        """The output, (B, T, d_out)."""
        return self.steps(case, known)["out"]

    def steps(self, case: Case, known: Known | None = None) -> dict[str, Tensor]:
        """Every tensor on the way from x to out, by name; `known` keeps them for formulas that begin with the same."""
        functions = tuple(vars(self).values())
        known = {} if known is None else known
        made: dict[str, Tensor] = {}
        for number, stage in _STAGES:  # what a stage makes depends on so many of the functions
            key = functions[:number]
            if key not in known:
                try:
                    known[key] = made | stage(self, self.read(case), made)
                except (RuntimeError, ValueError) as error:  # shapes that do not fit: torch takes long to say so
                    known[key] = error
            result = known[key]
            if isinstance(result, Exception):
                raise result
            made = result
        return made

    def _projected(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        queries, keys, values = self.adapt(self.project(case), case)
        return {"queries": queries, "keys": keys, "values": values}

    def _heads(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        q, k, v = (self.split(made[name], case) for name in ("queries", "keys", "values"))
        shared_k, shared_v = self.share(k, case), self.share_values(v, case)
        return {"split": q, "split keys": k, "split values": v, "shared keys": shared_k, "shared values": shared_v}

    def _scores(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": self.compare(made["split"], made["shared keys"], case)}

    def _scaled(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        scaled = self.bend(self.scale(made["scores"], case), case)
        return {"scaled": scaled if case.bias is None else scaled + case.bias}

    def _weights(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        visible = self.see(case)
        masked = self.hide(made["scaled"], visible, case)
        return {"mask": visible, "masked": masked, "weights": self.weigh(self.normalise(masked, case), visible, case)}

    def _context(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"context": self.attend(made["weights"], made["shared values"], case)}

    def _concat(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"concat": self.merge(made["context"], case)}

    def _out(self, case: Case, made: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"out": self.output(made["concat"], case)}


_STAGES: tuple[tuple[int, Callable[[Formula, Case, dict[str, Tensor]], dict[str, Tensor]]], ...] = (
    (3, Formula._projected),
    (6, Formula._heads),
    (7, Formula._scores),
    (9, Formula._scaled),
    (13, Formula._weights),
    (14, Formula._context),
    (15, Formula._concat),
    (16, Formula._out),
)
RIGHT = (Formula(), Formula(split=split_alternating, merge=merge_alternating))
