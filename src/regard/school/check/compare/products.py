"""Products: the matrix products of a run, with what each axis is for, and the two that are attention's.

Scores are a product of queries and keys over their width; the context is a product of weights and values over the keys.
Which axis is which is read from the product itself, not from sizes or names.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from regard.school.check.learner_code.protocol import Observation, Recorded

_AS_MATRICES = ("matmul", "bmm", "mm", "rmatmul", "baddbmm")
_SMALL = 1e-9  # of a sum of weights


@dataclass(frozen=True)
class RunProduct:
    """A product of two tensors; axes are letters, as in einsum."""

    number: int  # of the call
    line: int
    left: Tensor
    right: Tensor
    axes: tuple[str, str, str]  # of left, right and the result
    operands: tuple[int, int]  # the numbers of the calls that made them
    value: Tensor

    @property
    def contracted(self) -> str:
        """The axes that are summed over."""
        left, right, out = self.axes
        return "".join(one for one in left if one in right and one not in out)

    def flipped(self) -> RunProduct:
        """The same with left and right exchanged."""
        left, right, out = self.axes
        first, second = self.operands
        return RunProduct(
            self.number, self.line, self.right, self.left, (right, left, out), (second, first), self.value
        )


def products(seen: Observation) -> Iterator[RunProduct]:
    """The products of two tensors among the calls of a run."""
    calls = seen.recorded
    for number in range(seen.built, len(calls)):
        call = calls[number]
        if len(call.inputs) < 2 or (call.name != "einsum" and call.name not in _AS_MATRICES):
            continue
        if call.name == "einsum" and len(call.inputs) == 3:
            yield from _pairs_of_three(call, number, [calls[i].value for i in call.inputs])
            continue
        first, second = call.inputs[-2:]
        if call.name == "rmatmul":
            first, second = second, first
        left, right = calls[first].value, calls[second].value
        axes = _einsum_axes(call, left, right) if call.name == "einsum" else _matrix_axes(left, right)
        if axes is not None and left.is_floating_point() and right.is_floating_point():
            yield RunProduct(
                number, call.line, left.double(), right.double(), axes, (first, second), call.value.double()
            )


def _pairs_of_three(call: Recorded, number: int, operands: list[Tensor]) -> Iterator[RunProduct]:
    """The products of two of the three tensors of einsum, before the third."""
    given, arrow, out = call.equation.replace(" ", "").partition("->")
    parts = given.split(",")
    if not arrow or "." in given or not all(t.is_floating_point() for t in operands):
        return
    for i, j in ((0, 1), (1, 2), (0, 2)):
        rest = parts[3 - i - j] + out
        letters = "".join(dict.fromkeys(one for one in parts[i] + parts[j] if one in rest))
        left, right = operands[i].double(), operands[j].double()
        value = torch.einsum(f"{parts[i]},{parts[j]}->{letters}", left, right)
        axes = (parts[i], parts[j], letters)
        yield RunProduct(number, call.line, left, right, axes, (call.inputs[i], call.inputs[j]), value)


def _matrix_axes(left: Tensor, right: Tensor) -> tuple[str, str, str] | None:
    """Letters of a matrix product: those of the batch stand in the same place from the right."""
    if left.dim() < 2 or right.dim() < 2:
        return None
    batch = string.ascii_uppercase[: max(left.dim(), right.dim()) - 2]
    of_left, of_right = batch[len(batch) - left.dim() + 2 :], batch[len(batch) - right.dim() + 2 :]
    return of_left + "tc", of_right + "cs", batch + "ts"


def _einsum_axes(call: Recorded, left: Tensor, right: Tensor) -> tuple[str, str, str] | None:
    """Letters of einsum with two operands; "..." is written out."""
    given, arrow, out = call.equation.replace(" ", "").partition("->")
    parts = given.split(",")
    if len(parts) != 2 or not arrow or len(call.inputs) != 2:
        return None
    more = [t.dim() - len(part.replace("...", "")) for part, t in zip(parts, (left, right), strict=True)]
    unused = [one for one in string.ascii_uppercase if one not in call.equation][: max(*more, 0)]
    letters = "".join(unused)
    first, second = (
        part.replace("...", letters[len(letters) - count :]) for part, count in zip(parts, more, strict=True)
    )
    return first, second, out.replace("...", letters)


def contexts(found: Sequence[RunProduct], B: int, calls: Sequence[Recorded] = ()) -> list[RunProduct]:
    """Products of weights and values: the left one sums to 1 over what is summed, in every row that sees anything.

    calls: those of the run, where weights may be a part of what sums to 1: the rest goes to a sink.
    """
    result = []
    for one in found:
        for way in (one, one.flipped()):
            over = way.contracted
            if len(over) == 1 and _has_texts(way, B) and _are_weights(way, way.axes[0].index(over), calls):
                result.append(way)
                break
    return result


def _are_weights(one: RunProduct, axis: int, calls: Sequence[Recorded]) -> bool:
    if _are_shares(one.left, axis):
        return True
    made = calls[one.operands[0]] if calls else None
    if made is None or made.name != "getitem" or not made.inputs or axis != one.left.dim() - 1:
        return False
    full = calls[made.inputs[0]].value
    return full.dim() == one.left.dim() and full.is_floating_point() and _are_shares(full.double(), axis)


def _are_shares(weights: Tensor, axis: int) -> bool:
    """Are these numbers of at least 0 that sum to 1 over an axis (or to 0, where nothing is seen)?"""
    if not bool(weights.isfinite().all()) or float(weights.min()) < 0 or weights.shape[axis] < 2:
        return False
    sums = weights.sum(axis)
    return bool((((sums - 1).abs() < 1e-6) | (sums == 0)).all()) and bool((sums > 0).any()) and not _is_fixed(weights)


def _is_fixed(weights: Tensor) -> bool:
    """Is it a table of 0 and 1, such as a mask or an identity?"""
    return bool(((weights == 0) | (weights == 1)).all())


def _has_texts(one: RunProduct, B: int) -> bool:
    return any(size % B == 0 for size in one.left.shape)


def scores_of(context: RunProduct, found: Sequence[RunProduct], seen: Observation) -> list[RunProduct]:
    """The products that led to the weights of a context, the latest first: scores, or what was added to them."""
    before = calls_before(seen.recorded, context.operands[0])
    size = context.left.numel()
    return [one for one in reversed(found) if one.number in before and one.value.numel() == size]


def calls_before(calls: Sequence[Recorded], number: int) -> set[int]:
    """The calls that a call depends on, and itself."""
    result, waiting = set(), [number]
    while waiting:
        one = waiting.pop()
        if one not in result:
            result.add(one)
            waiting += calls[one].inputs
    return result


def by_heads(t: Tensor, axes: str, last: str, like: str, sizes: dict[str, int], B: int) -> list[Tensor]:
    """A tensor as (B, H, *last): texts, heads, and the axes that are named; each way that its batch axes can be read.

    like: the axes of the batch as the result of the product has them; what is missing here is the same for all of them.
    """
    missing = [one for one in like if one not in axes]
    t = t.reshape((1,) * len(missing) + tuple(t.shape))
    axes = "".join(missing) + axes
    if sorted(axes) != sorted((*like, *last)):
        return []  # an axis of it is neither of the batch nor named
    t = t.permute([axes.index(one) for one in (*like, *last)])
    t = t.expand(*(sizes[one] for one in like), *t.shape[len(like) :])
    batch, rest = t.shape[: len(like)], t.shape[len(like) :]
    if B in batch:
        return [t.movedim(batch.index(B), 0).reshape(B, -1, *rest)]
    joined = [i for i, size in enumerate(batch) if size % B == 0]
    if len(joined) != 1 or prod(batch) % B:
        return []
    t = t.movedim(joined[0], 0).reshape(batch[joined[0]], -1, *rest)
    first = t.unflatten(0, (B, -1)).flatten(1, 2)
    return [first, t.unflatten(0, (-1, B)).transpose(0, 1).flatten(1, 2)]


def axis_sizes(one: RunProduct) -> dict[str, int]:
    """How long each axis of a product is."""
    pairs = [
        *zip(one.axes[0], one.left.shape, strict=True),
        *zip(one.axes[1], one.right.shape, strict=True),
    ]
    sizes: dict[str, int] = {}
    for letter, size in pairs:
        sizes[letter] = max(size, sizes.get(letter, 1))
    return sizes


@dataclass(frozen=True)
class RunHeads:
    """What one product of weights and values, and the product that led to its weights, say of some heads."""

    q: Tensor  # (B, H, T, D), as they are compared
    k: Tensor  # (B, H, S, D)
    v: Tensor  # (B, H, S, Dv)
    raw: Tensor  # (B, H, T, S): q @ k.mT
    weights: Tensor  # (B, H, T, S)
    context: Tensor  # (B, H, T, Dv)
    compared: RunProduct
    mixed: RunProduct
    loop: tuple[RunHeads, ...] = ()  # the heads one by one, where a loop made them


def run_heads(context: RunProduct, compared: RunProduct, B: int, T: int) -> Iterator[RunHeads]:
    """Queries, keys, values and weights of two such products, in each way in which their axes can be read."""
    for one in (compared, compared.flipped()):
        found = _compared(one, context, B, T)
        if found is not None:
            yield from found


def _compared(one: RunProduct, context: RunProduct, B: int, T: int) -> list[RunHeads] | None:
    left, right, out = one.axes
    keys = [letter for letter in right if letter in out and letter not in left]
    queries = [letter for letter in left if letter in out and letter not in right]
    sizes, width = axis_sizes(one), one.contracted
    tokens = [letter for letter in queries if sizes[letter] == T] or queries[-1:]
    if len(keys) != 1 or not tokens or len(width) != 1:
        return None
    t, s, like = tokens[-1], keys[0], "".join(letter for letter in out if letter not in (tokens[-1], keys[0]))
    mixed = _mixed(context, B, T)
    if mixed is None:
        return None
    queries_and_keys = (
        by_heads(one.left, left, t + width, like, sizes, B),
        by_heads(one.right, right, s + width, like, sizes, B),
    )
    heads = []
    for q, k, weights, v, value in zip(*queries_and_keys, *mixed, strict=False):
        if weights.shape == (*q.shape[:3], k.shape[2]):
            heads.append(RunHeads(q, k, v, q @ k.mT, weights, value, one, context))
    return heads


def _mixed(context: RunProduct, B: int, T: int) -> tuple[list[Tensor], ...] | None:
    """Weights, values and their product by heads, in each way that they can be read."""
    over = context.contracted
    in_weights = [letter for letter in context.axes[0] if letter != over]
    free = [letter for letter in context.axes[1] if letter != over and letter not in context.axes[0]]
    sizes_of_context = axis_sizes(context)
    of_tokens = [letter for letter in in_weights if sizes_of_context[letter] == T]
    if len(free) != 1 or not of_tokens:
        return None
    rows = next((n for n in reversed(of_tokens) if n not in context.axes[1]), of_tokens[-1])
    batch = "".join(letter for letter in context.axes[2] if letter not in (rows, free[0]))
    return (
        by_heads(context.left, context.axes[0], rows + over, batch, sizes_of_context, B),
        by_heads(context.right, context.axes[1], over + free[0], batch, sizes_of_context, B),
        by_heads(context.value, context.axes[2], rows + free[0], batch, sizes_of_context, B),
    )
