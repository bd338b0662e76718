"""Maps of a layer that the page computes again, so that their numbers need not be in it.

Scores are products of queries and keys, and what follows up to the weights is made from them: of 334 tokens and 8 heads
these maps would be five sixths of all steps. A recipe is given only where it gives the numbers that the layer computed;
the numbers of any other map are stored. js/data/computed-steps.js follows the recipes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

MAPS = ("scores", "mask", "scaled", "bias", "weights", "dropout")
QUERIES = ("queries", "split", "transpose", "normed", "turned")  # the last of these that there is meets the keys
MOST = 2**22  # numbers of one map that a page computes
BITS = (12, 15)  # of a number's fraction that are stored: within 1 part in 8,000, or in 65,000 where weights need it
_WEIGHT = 5e-4  # the largest error of a weight that follows from stored numbers; two decimals are shown
_CHANGED = 2.0  # stands for an infinity or a NaN that a recipe does not give

Recipe = dict[str, Any]
Described = tuple[dict[str, Any], Tensor]


class _Map(NamedTuple):
    """A map before the one that is described: its number among the steps, what it is and what the page has of it."""

    number: int
    exact: Tensor
    known: Tensor


def rounded(numbers: Tensor, bits: int = BITS[0]) -> Tensor:
    """The numbers as they are stored, with so many bits of their fraction; infinities and NaN stay what they are.

    >>> rounded(torch.tensor([1.0, 1 + 2**-12, 1 + 2**-14])).tolist()
    [1.0, 1.000244140625, 1.0]
    """
    dropped = 23 - bits
    codes = numbers.float().contiguous().view(torch.int32)
    kept = ((codes + (1 << (dropped - 1))) >> dropped << dropped).view(torch.float32)
    return torch.where(numbers.isfinite() & kept.isfinite(), kept, numbers.float())


def add_recipes(
    described: Sequence[Described], heads: int, store: Callable[[bytes], str], bits: int = BITS[0]
) -> set[int]:
    """Give each map that can be computed again its recipe, and return the numbers of these steps.

    described: all steps, and their tensors for one text. store: keeps bytes as a block and gives its name. bits: of the
    queries and keys that are stored.
    """
    found: set[int] = set()
    before: _Map | None = None
    for number, (document, value) in enumerate(described):
        if document["name"] not in MAPS or document["axes"] not in (["head", "query", "key"], ["query", "key"]):
            continue
        exact = value.detach().cpu().float()
        recipe, known = (None, exact) if exact.numel() > MOST else _recipe(described, exact, before, heads, store, bits)
        if recipe is not None:
            document["made"] = {"hidden": None, "factor": None} | recipe
            found.add(number)
        before = _Map(number, exact, known)
    return found


def mixture(described: Sequence[Described], heads: int) -> list[tuple[Tensor, dict[str, Any]]]:
    """weights @ values, where that is the context: its numbers in the order token, head, width, and its recipe."""
    steps = {document["name"]: number for number, (document, _) in enumerate(described)}
    named = "queries" in steps
    context, kept = steps.get("context"), _last(steps, ["weights", "dropout"])
    of = _last(steps, ["values", "split values", "transpose values"]) if named else steps.get("source", steps.get("x"))
    if context is None or kept is None or of is None or described[kept][1].numel() > MOST:
        return []
    v, made = _by_head(*described[of], heads), _by_head(*described[context], heads)
    weights = _three(described[kept][1].detach().cpu().float())
    if v is None or made is None or weights.dim() != 3 or (*weights.shape[:2], v.shape[-1]) != made.shape:
        return []
    if weights.shape[2] != v.shape[1] or not bool(
        ((weights @ v - made).abs() <= 1e-5 * (weights @ v.abs()) + 1e-9).all()
    ):
        return []
    recipe = {"by": "mix", "of": [kept, of], "hidden": None, "factor": None}
    return [(made.transpose(0, 1).flatten(), {"block": None, "made": recipe, "bytes": 3})]


def _recipe(
    described: Sequence[Described],
    exact: Tensor,
    before: _Map | None,
    heads: int,
    store: Callable[[bytes], str],
    bits: int,
) -> tuple[Recipe | None, Tensor]:
    """How a map is made, and the numbers that this gives; None and the numbers to store where it is not known."""
    if before is None:
        found = _product(described, exact, heads, bits)
    else:
        found = next((one for make in _FROM_A_MAP if (one := make(exact, before, store)) is not None), None)
    return found or (None, rounded(exact, bits))


def _product(described: Sequence[Described], scores: Tensor, heads: int, bits: int) -> tuple[Recipe, Tensor] | None:
    """queries @ keys.mT"""
    steps = {document["name"]: number for number, (document, _) in enumerate(described)}
    named = "queries" in steps
    of = [steps.get("x"), steps.get("source", steps.get("x"))]
    if named:
        of = [_last(steps, QUERIES), _last(steps, ["keys", *(f"{one} keys" for one in QUERIES[1:])])]
    if None in of:
        return None
    q, k = (_by_head(*described[number], heads) for number in of if number is not None)
    if q is None or k is None or q.shape[-1] != k.shape[-1] or (*q.shape[:2], k.shape[1]) != _three(scores).shape:
        return None
    error, scale = (q @ k.mT - _three(scores)).abs(), q.abs() @ k.abs().mT
    if not bool((error <= 1e-5 * scale + 1e-9).all()):
        return None
    return {"by": "product", "of": of}, (rounded(q, bits) @ rounded(k, bits).mT).view(scores.shape)


def is_precise(name: str, named: bool) -> bool:
    """Are scores made of this step? named: there are queries and keys."""
    return name.removesuffix(" keys") in ((*QUERIES, "keys") if named else ("x", "source"))


def _last(steps: Mapping[str, int], names: Sequence[str]) -> int | None:
    return next((steps[name] for name in reversed(names) if name in steps), None)


def _by_head(document: dict[str, Any], value: Tensor, heads: int) -> Tensor | None:
    """Queries or keys as (head, token, width), with heads that are shared repeated."""
    axes, value = list(document["axes"]), value.detach().cpu().float()
    if document["heads"] > 1:
        value, axes = value.unflatten(-1, (document["heads"], -1)), [*axes[:-1], "head", "width"]
    if "head" not in axes:
        value, axes = value[None], ["head", *axes]
    tokens = next((axis for axis in axes if axis in ("query", "key")), "")
    if sorted(axes) != sorted(["head", tokens, "width"]) or heads % value.shape[axes.index("head")]:
        return None
    value = value.permute(*(axes.index(axis) for axis in ("head", tokens, "width")))
    return value.repeat_interleave(heads // value.shape[0], 0)


def _three(scores: Tensor) -> Tensor:
    return scores if scores.dim() == 3 else scores[None]


def _same(exact: Tensor, before: _Map, _: Callable[[bytes], str]) -> tuple[Recipe, Tensor] | None:
    """As dropout, which does nothing after training."""
    return ({"by": "same", "of": [before.number]}, before.known) if torch.equal(exact, before.exact) else None


def _mask(exact: Tensor, before: _Map, store: Callable[[bytes], str]) -> tuple[Recipe, Tensor] | None:
    """−∞ on hidden keys: those after the query, or those of a block of bits."""
    hidden = exact == -torch.inf
    if not torch.equal(before.exact.masked_fill(hidden, -torch.inf), exact):
        return None
    T, S = exact.shape[-2:]
    recipe: Recipe = {"by": "mask", "of": [before.number]}
    if not torch.equal(hidden, torch.ones(T, S, dtype=torch.bool).triu(S - T + 1).expand_as(hidden)):
        recipe["hidden"] = store(np.packbits(hidden.numpy()).tobytes())
    return recipe, before.known.masked_fill(hidden, -torch.inf)


def _scale(exact: Tensor, before: _Map, _: Callable[[bytes], str]) -> tuple[Recipe, Tensor] | None:
    """A factor, such as 1 ÷ √width."""
    finite = before.exact.isfinite() & exact.isfinite()
    a, b = before.exact[finite].double(), exact[finite].double()
    factor = float((a * b).sum() / (a * a).sum().clamp(min=1e-300))
    # A factor of 0, or one that is no number, says nothing of infinities.
    if not factor > 0 or not torch.allclose(before.exact * factor, exact, rtol=1e-5, atol=1e-9):
        return None
    return {"by": "scale", "of": [before.number], "factor": factor}, before.known * factor


def _softmax(exact: Tensor, before: _Map, _: Callable[[bytes], str]) -> tuple[Recipe, Tensor] | None:
    """A row without a visible key is 0."""

    def softmax(scores: Tensor) -> Tensor:
        return scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)

    known = softmax(before.known)
    off = max(_error(softmax(before.exact), exact) / 1e-5, _error(known, exact) / _WEIGHT)
    return ({"by": "softmax", "of": [before.number]}, known) if off <= 1 else None


def _error(numbers: Tensor, wanted: Tensor) -> float:
    return float((numbers - wanted).abs().nan_to_num(_CHANGED, _CHANGED).max()) if wanted.numel() else 0.0


_FROM_A_MAP = (_same, _mask, _scale, _softmax)
