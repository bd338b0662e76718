"""How the heads of one call are wired: the linear maps before and after them, and their way to the logits.

Each map is found by its numbers: what goes in or comes out is, bit for bit, what the heads have. So no name of a module
matters, and a model that does something else to its contexts is told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Tensor], Tensor]
NONE = "no Linear, and no product with a 2-D parameter,"


@dataclass(frozen=True, eq=False)
class HeadMap:
    """A linear map, and which of its features belong to each head."""

    weight: Tensor  # (out, in), in the model's own memory
    starts: tuple[int, ...]  # the first feature of each head
    width: int  # features of a head
    version: int  # of the weight, which must not change until it is read
    rotated: bool = False  # q and k are these features after a rotation by position

    def rows(self, head: int, heads: int) -> Tensor:
        """(D, in): what makes the features of this one of so many heads; several may share one."""
        start = self.starts[head * len(self.starts) // heads]
        return self._read()[start : start + self.width]

    def columns(self, head: int) -> Tensor:
        """(D, out): what becomes of the features of a head."""
        return self._read()[:, self.starts[head] : self.starts[head] + self.width].T

    def _read(self) -> Tensor:
        if version_of(self.weight) != self.version:
            raise ValueError("the model's weights were changed since it was watched; watch it again")
        return self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))


@dataclass(frozen=True, eq=False)
class LinearPath:
    """What becomes of a part of the residual stream: a linear function of it, with the scales of norms as they were."""

    run: Step
    unembedding: Tensor | None = None  # (V, E), once it went through this
    after: Step | None = None  # what is done to logits

    def then(self, step: Step) -> LinearPath:
        """The same path with one more step."""
        if self.unembedding is None:
            return LinearPath(_chain(self.run, step))
        return LinearPath(self.run, self.unembedding, step if self.after is None else _chain(self.after, step))

    def __add__(self, other: LinearPath) -> LinearPath:
        one, two = self.run, other.run
        return LinearPath(lambda t: one(t) + two(t))

    def logits(self, written: Tensor, tokens: Tensor) -> Tensor:
        """(B, T, n): what this adds to the logits of these tokens, (n,); written: (B, T, E)."""
        assert self.unembedding is not None
        out = self.run(written) @ self.unembedding[tokens.to(self.unembedding.device)].to(written).T
        out = out if self.after is None else self.after(out)
        return out.transpose(0, 1) if self._has_tokens_first(written) else out

    def logits_of_each(self, written: Tensor, tokens: Tensor) -> Tensor:
        """(B, T): what this adds to the logit of one token at each position, (B, T)."""
        assert self.unembedding is not None
        is_turned = self._has_tokens_first(written)
        tokens = (tokens.T if is_turned else tokens).to(self.unembedding.device)
        out = (self.run(written) * self.unembedding[tokens].to(written)).sum(-1)
        out = out if self.after is None else self.after(out)
        return out.T if is_turned else out

    def _has_tokens_first(self, written: Tensor) -> bool:
        """Are the logits of what is written (B, T, E) themselves (T, B, V)?"""
        B, T, _ = written.shape
        first_text = torch.zeros_like(written)
        first_text[0] = torch.linspace(1, 2, written.shape[-1])
        there = self.run(first_text).ne(0).any(-1)
        return tuple(there.shape) == (T, B) and (T != B or bool(there[1:].any()))


def _chain(first: Step, second: Step) -> Step:
    return lambda t: second(first(t))


@dataclass(eq=False)
class HeadWiring:
    """What is known of one call, filled in while the model runs on; where something is missing, why."""

    context: Tensor | None  # (B, H, T, D), until the forward ends
    depth: int = 0  # of the module that made the call, among those that were running
    found: list[tuple[HeadMap, str]] = field(default_factory=list)  # the maps that contexts go into, and where
    maps: dict[str, HeadMap] = field(default_factory=dict)  # of queries, keys and values
    unknown: dict[str, str] = field(default_factory=dict)  # by what is missing: why
    is_handed_on: bool = False  # its module, or one around it, returned what came out of the map
    path: LinearPath | None = None

    def output(self) -> HeadMap:
        """The output projection."""
        if len(self.found) == 1 and self.is_handed_on:
            return self.found[0][0]
        if len(self.found) == 1:
            raise ValueError(
                f"its output projection was not found: its contexts go into a linear map in "
                f"{self.found[0][1] or 'the model itself'}, and what comes out is not what the module hands on"
            )
        if self.found:
            names = " and ".join(dict.fromkeys(name or "the model itself" for _, name in self.found))
            raise ValueError(
                f"its contexts go into {len(self.found)} linear maps, in {names}; none is its output alone"
            )
        raise ValueError(f"its output projection was not found: {NONE} took its contexts, side by side and unchanged")

    def input(self, what: str) -> HeadMap:
        """The projection of its "queries", "keys" or "values"."""
        if what not in self.maps:
            how = "unchanged" if what == "values" else "unchanged or rotated by position"
            why = self.unknown.get(what, f"{NONE} gave them {how}")
            raise ValueError(f"the projection of its {what} was not found: {why}")
        return self.maps[what]

    def way_to_logits(self) -> LinearPath:
        """From the output projection to the logits."""
        if self.path is None:
            raise ValueError(
                "what it writes does not reach the model's logits by additions, norms, scales and one unembedding "
                "alone, or the model returned no logits"
            )
        return self.path


def version_of(tensor: Tensor) -> int:
    """How often the tensor was written over; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def find_features(heads: Tensor, features: Tensor) -> tuple[int, ...] | None:
    """Where each head, (B, H, n, D), is among the features, (B, n, F), bit for bit; None where one of them is not."""
    (B, H, n, D), F = heads.shape, features.shape[-1]
    if F == H * D and torch.equal(features.view(B, n, H, D).transpose(1, 2), heads):
        return tuple(range(0, H * D, D))
    if F < D or not heads.numel():
        return None
    windows, starts = features[0, -1].unfold(0, D, 1), []
    for head in range(H):
        near = (windows == heads[0, head, -1]).all(-1).nonzero()[:, 0].tolist()
        start = next((i for i in near if torch.equal(features[..., i : i + D], heads[:, head])), None)
        if start is None:
            return None
        starts.append(start)
    return tuple(starts)


def find_rotated(heads: Tensor, features: Tensor) -> tuple[int, ...] | None:
    """The same for heads that were rotated, each token by itself: they are as long as before, up to one factor."""
    (B, H, n, D), F = heads.shape, features.shape[-1]
    if F % D or B * n < 2:
        return None
    near = 1e-3 if heads.element_size() > 2 else 3e-2
    lengths = features.reshape(B, n, F // D, D).double().norm(dim=-1)
    starts = []
    for head in range(H):
        ratios = heads[:, head].double().norm(dim=-1)[..., None] / lengths
        away = (ratios / ratios.mean((0, 1)) - 1).abs().amax((0, 1))
        if not float(away.min()) < near:
            return None
        starts.append(D * int(away.argmin()))
    return tuple(starts)


def in_both_orders(features: Any, B: int, n: int) -> list[tuple[Tensor, bool]]:
    """(…, F) as (B, n, F), in the orders that it may have; True: tokens come before texts."""
    F = features.shape[-1]
    if features.numel() != B * n * F or not F:
        return []
    first, second = features.reshape(B, n, F), features.reshape(n, B, F).transpose(0, 1)
    if features.dim() == 3 and (tuple(features.shape[:2]) == (n, B) != (B, n)):
        return [(second, True)]
    return [(first, False)] if B == 1 or n == 1 else [(first, False), (second, True)]
