"""Relations: how a wrong result belongs to the right one, where no wrong answer of the exercise explains it.

Negated, transposed, off by a factor, an argument added, a list instead of a tensor: what can be seen from the two
results alone. A relation is told only if it holds in every run, with other numbers each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from regard.school.check.verdict import Finding
from regard.school.exercises.comparing import NUMBERS, describe_value, is_same

Run = tuple[Sequence[Any], Any, Any]  # arguments, the learner's result, the right one
Relation = tuple[str, str, Any]  # its name, what it says, and what the result would be
MOST_AXES, MOST_NUMBERS = 4, 100_000  # of tensors whose axes are tried in every order
MOST_PARTS = 8  # of a list in which the right result is looked for


def find_relation(runs: Sequence[Run], names: Sequence[str], tolerance: float | int) -> Finding | None:
    """The first relation that holds between wrong and right results in every run; None if there is none."""
    runs = [(a, _numbers(s), _numbers(r)) for a, s, r in runs if not is_same(s, r, tolerance)]
    places = [_first_part(seen, right, tolerance) for _, seen, right in runs]
    if not runs or any(one != places[0] for one in places):
        return None
    where, parted = places[0], [(a, _part(s, places[0]), _part(r, places[0])) for a, s, r in runs]
    found = [_holding(one, names, tolerance) for one in parted]
    for name, says in found[0].items():
        if name.startswith("off by") and _is_number(parted[0][2]) and not _is_every_time(says, name, found, parted):
            continue  # between two single numbers, there always is a factor
        if all(name in one for one in found):
            subject = "The result" if where is None else f"Part {where} of the result"
            return Finding(name, f"{subject} {says}", step="result")
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and torch.as_tensor(value).numel() == 1


def _is_every_time(says: str, name: str, found: Sequence[dict[str, str]], runs: Sequence[Run]) -> bool:
    """Is it the same factor for other numbers?"""
    return len({float(right) for _, _, right in runs}) > 1 and all(one.get(name) == says for one in found)


def _holding(run: Run, names: Sequence[str], tolerance: float | int) -> dict[str, str]:
    """The relations that hold in one run: what each says, by name."""
    arguments, seen, right = run
    if isinstance(seen, NUMBERS) and isinstance(right, NUMBERS):
        a, b = torch.as_tensor(seen), torch.as_tensor(right)
        if a.is_complex() or b.is_complex() or max(a.numel(), b.numel()) > MOST_NUMBERS:
            return {}
        a, b = a.detach().double(), b.detach().double()
        related = [*_changed(a, b), *_with_arguments(arguments, names, a, b), *_reordered(a, b)]
        related += [*_of_fewer_axes(a, b), *_of_sizes(a, b), *_of_places(a, b), *_located(a, b)]
        return {name: says for name, says, value in related if is_same(a, value, tolerance)}
    return {name: says for name, says, value in _of_kinds(seen, right) if is_same(value, right, tolerance)}


def _numbers(value: Any) -> Any:
    """Lists of numbers inside of a tuple as tensors: a list of losses has the relations of one."""
    if isinstance(value, tuple):
        return tuple(torch.tensor(one) if _is_list_of_floats(one) else one for one in value)
    return value


def _is_list_of_floats(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, float) for one in value)


def _first_part(seen: Any, right: Any, tolerance: float | int) -> int | None:
    """Which part of two tuples differs first; None where the results are not tuples of one length."""
    if not (isinstance(seen, (list, tuple)) and isinstance(right, tuple) and len(seen) == len(right)):
        return None
    return next(i for i, (a, b) in enumerate(zip(seen, right, strict=True)) if not is_same(a, b, tolerance))


def _part(value: Any, place: int | None) -> Any:
    return value if place is None else value[place]


def _changed(seen: Tensor, right: Tensor) -> Iterator[Relation]:
    """The same numbers, each changed in the same way."""
    if seen.shape != right.shape or not right.numel():
        return
    if bool(seen.isnan().any()) and not bool(right.isnan().any()):
        count = f"{int(seen.isnan().sum())} of {seen.numel()} numbers"
        yield "NaN", f"is NaN in {count}: 0 / 0, ∞ − ∞ and the root of a negative number give that.", seen
    elif bool(seen.isinf().any()) and not bool(right.isinf().any()):
        yield "infinite", f"is infinite in {int(seen.isinf().sum())} of {seen.numel()} numbers.", seen
    if not bool((seen.isfinite() & right.isfinite()).all()):
        return
    yield "sign reversed", "has the opposite sign.", -right
    yield "all zero", "is 0 everywhere.", torch.zeros_like(right)
    place = int(right.abs().argmax())
    factor = float(seen.flatten()[place] / right.flatten()[place])
    if math.isfinite(factor) and factor != 0:
        yield "off by a factor", f"is {factor:.4g} times as large as it should be, in every number.", right * factor
    constant = float(seen.flatten()[place] - right.flatten()[place])
    yield "off by a constant", f"is larger by {constant:.4g} in every number.".replace("-", "−"), right + constant
    yield "without the sign", "has lost its signs: these are the absolute values.", right.abs()
    yield "squared", "is the square of what it should be.", right**2
    yield "exponential too many", "is e to the power of what it should be.", right.exp()
    yield "logarithm too many", "is the logarithm of what it should be.", right.log()
    yield "root too many", "is the square root of what it should be.", right.sqrt()
    for axis in range(right.dim()):
        yield "softmax on top", "is the right one after one more softmax.", right.softmax(axis)
        yield "log softmax on top", "is the logarithm of a softmax of the right one.", right.log_softmax(axis)


def _with_arguments(arguments: Sequence[Any], names: Sequence[str], seen: Tensor, right: Tensor) -> Iterator[Relation]:
    for name, one in zip(names, arguments, strict=False):
        if isinstance(one, Tensor) and not one.is_complex():
            yield f"{name} returned", f"is {name} as it came in.", one.double()
            if one.shape == right.shape == seen.shape:
                yield f"{name} added", f"has {name} added to it.", right + one
                yield f"{name} multiplied", f"is multiplied by {name}.", right * one


def _reordered(seen: Tensor, right: Tensor) -> Iterator[Relation]:
    """The same numbers, or only the same sizes, along other axes."""
    if not seen.dim() == right.dim() <= MOST_AXES:
        return
    axes = range(right.dim())
    for order in list(permutations(axes))[1:]:
        moved = [i for i in axes if order[i] != i]
        which = " and ".join(map(str, moved)) if len(moved) == 2 else f"in the order {', '.join(map(str, order))}"
        yield "axes exchanged", f"has its axes {which} exchanged.", right.permute(order)
        if right.permute(order).shape == seen.shape != right.shape:
            says = f"has the shape {tuple(seen.shape)}: the sizes of {tuple(right.shape)} in another order"
            yield "axes in another order", f"{says}. Which two are to be exchanged?", seen


def _of_fewer_axes(seen: Tensor, right: Tensor) -> Iterator[Relation]:
    """One axis added up, averaged, cut to one entry, or gone."""
    if seen.dim() != right.dim() - 1:
        return
    for axis in range(right.dim()):
        for done, value in (("added up", right.sum(axis)), ("averaged", right.mean(axis))):
            yield f"{done} along an axis", f"is {done} along axis {axis}, which must stay.", value
        for end, place in (("first", 0), ("last", -1)) if right.shape[axis] else ():
            yield f"the {end} only", f"is only the {end} along axis {axis}.", right.movedim(axis, 0)[place]
    sizes = tuple(right.shape)
    lost = [i for i in range(right.dim()) if sizes[:i] + sizes[i + 1 :] == tuple(seen.shape)]
    if lost:
        says = f"has the shape {tuple(seen.shape)}; expected {sizes}: axis {lost[0]} is gone."
        yield "an axis is gone", says, seen


def _of_sizes(seen: Tensor, right: Tensor) -> Iterator[Relation]:
    """Another shape, of the right numbers or not."""
    if seen.shape == right.shape:
        return
    if seen.numel() == right.numel():
        says = f"has the shape {tuple(seen.shape)}, not {tuple(right.shape)}; the numbers are right."
        yield "right numbers in another shape", says, right.reshape(seen.shape)
        if seen.numel() > 1 and is_same(seen.flatten().sort().values, right.flatten().sort().values, 1e-5):
            says = (
                f"has the shape {tuple(seen.shape)}, not {tuple(right.shape)}, with the right numbers in another order."
            )
            yield "joined on another axis", says, seen
    if seen.dim() > right.dim():
        says = f"has the shape {tuple(seen.shape)}: {seen.dim() - right.dim()} axes more than {tuple(right.shape)}."
        yield "too many axes", says.replace(" 1 axes", " 1 axis"), seen
    differ = [i for i, sizes in enumerate(zip(seen.shape, right.shape, strict=False)) if sizes[0] != sizes[1]]
    if seen.dim() == right.dim() and len(differ) == 1:
        n, count = seen.shape[differ[0]], right.shape[differ[0]]
        says = f"has {n} along axis {differ[0]}, of the shape {tuple(seen.shape)}; expected {count}."
        yield "too many along an axis" if n > count else "too few along an axis", says, seen


def _of_places(seen: Tensor, right: Tensor) -> Iterator[Relation]:
    """The right numbers at other places, or only at some places."""
    if seen.shape != right.shape or not right.dim() or right.numel() < 2:
        return
    for axis in range(right.dim()):
        yield "reversed along an axis", f"is reversed along axis {axis}.", right.flip(axis)
        for by in (1, -1):
            yield "shifted by one", f"is shifted by one place along axis {axis}.", right.roll(by, axis)
        if (order := _order(seen.movedim(axis, 0), right.movedim(axis, 0))) is not None:
            says = (
                f"has another order along axis {axis}: what belongs at 0, 1 … stands at {', '.join(map(str, order))}."
            )
            yield "another order along an axis", says, seen
    if right.unique().numel() > 1 and is_same(seen.flatten().sort().values, right.flatten().sort().values, 1e-5):
        yield "the right numbers in other places", "has the right numbers, but in other places.", seen


def _located(seen: Tensor, right: Tensor) -> Iterator[Relation]:
    """Right numbers at some places only: above the diagonal, in the first rows, in the last."""
    if seen.shape != right.shape or not right.dim() or right.numel() < 2:
        return
    same = torch.isclose(seen, right, rtol=1e-4, atol=1e-6) | (seen == right)
    if right.dim() > 1 and right.shape[-1] == right.shape[-2]:
        future = torch.ones_like(right, dtype=torch.bool).triu(1)
        if bool(same[~future].all()):
            yield "wrong above the diagonal", "is wrong above the diagonal only: for keys after the query.", seen
        if bool(same[future].all()):
            yield "wrong below the diagonal", "is right above the diagonal, and wrong on or below it.", seen
    rows = same.movedim(-2, 0).flatten(1).all(1) if right.dim() > 1 else same
    if bool(rows[0]):
        first = int((~rows).to(torch.int8).argmax())
        if not bool(rows[first:].any()):
            yield "only the first are right", f"is right up to row {first - 1}; no row after it is.", seen
    elif bool(rows[-1]):
        last = int(rows.to(torch.int8).argmax())
        if bool(rows[last:].all()):
            yield "only the last are right", f"is wrong before row {last}, and right from there.", seen


def _order(seen: Tensor, right: Tensor) -> list[int] | None:
    """Where the slices of the right tensor are in the other one; None if they are not all there, or not distinct."""
    if len(right) < 2 or len(right) > 64:
        return None
    if not right.numel():
        return None
    distance = (seen.reshape(len(seen), 1, -1) - right.reshape(1, len(right), -1)).abs().amax(-1)
    close = distance <= 1e-4 * float(right.abs().max() or 1)
    if not bool((close.sum(0) == 1).all() and (close.sum(1) == 1).all()):
        return None
    return [int(one) for one in close.to(torch.int8).argmax(0)]


def _of_kinds(seen: Any, right: Any) -> Iterator[Relation]:
    """Right values in another kind of container: what the right result would be, made of the learner's."""
    if isinstance(seen, dict):
        yield from _of_dict(seen, right)
    elif isinstance(right, Tensor) and isinstance(seen, (list, tuple)) and seen:
        yield from _joined(seen)
        for i, one in enumerate(seen):
            says = f"is {describe_value(seen)}, and what is asked for is number {i} of it. max and topk return a pair"
            yield "a pair", f"{says}: .values and .indices.", one
    elif isinstance(right, (list, tuple)) and isinstance(seen, Tensor):
        yield "a tensor instead of a list", "is a tensor; a list is asked for: .tolist().", seen.tolist()
        says = f"is one tensor; {len(right)} are asked for."
        yield "one tensor instead of several", says, seen.unbind(0) if seen.dim() else ()
    elif isinstance(right, (list, tuple)) and isinstance(seen, (list, tuple)):
        yield from _of_sequences(seen, right)


def _of_dict(seen: dict[Any, Any], right: Any) -> Iterator[Relation]:
    if not isinstance(right, dict):
        yield "a dict instead of a tuple", "is a dict; return its values, with commas between.", list(seen.values())
        return
    missing, more = ([str(one) for one in a if one not in b] for a, b in ((right, seen), (seen, right)))
    if missing:
        yield "entries missing", f"lacks {', '.join(missing)}.", right
    elif more:
        yield "entries too many", f"has {', '.join(more)}, which should not be there.", right


def _of_sequences(seen: Sequence[Any], right: Sequence[Any]) -> Iterator[Relation]:
    yield "a list in a list", "is right, but inside of one more list.", seen[0] if len(seen) == 1 else None
    for where, one in _inside(seen):
        yield "part of what is returned", f"is {describe_value(seen)}; what is asked for is {where} of it.", one
    if any(isinstance(one, Tensor) for one in right):
        if len(seen) != len(right):
            yield "another number of parts", f"has {len(seen)} parts; {len(right)} are asked for.", right
    elif any(isinstance(one, Tensor) for one in seen):
        numbers = [one.item() if isinstance(one, Tensor) and one.numel() == 1 else one for one in seen]
        yield "tensors instead of numbers", "holds tensors; numbers are asked for: .item().", numbers
    if all(isinstance(one, (bool, int, float, str, type(None))) for one in [*seen, *right]):
        yield from ((name, says, right) for holds, name, says in _of_lists(list(seen), list(right)) if holds)


def _inside(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a list, and those of its lists, with their places."""
    for i, one in enumerate(value[:MOST_PARTS]):
        yield f"{place}[{i}]", one
        if isinstance(one, (list, tuple)) and not place:
            yield from _inside(one, f"[{i}]")


def _joined(seen: Sequence[Any]) -> Iterator[Relation]:
    if not all(isinstance(one, NUMBERS) for one in seen):
        return
    parts = [torch.as_tensor(one) for one in seen]
    says = f"is a {type(seen).__name__} of {len(seen)}; join them to one tensor"
    if all(one.shape == parts[0].shape for one in parts):
        for axis in range(parts[0].dim() + 1):
            yield "a list instead of a tensor", f"{says}: torch.stack.", torch.stack(parts, axis)
    if all(one.dim() and one.shape[1:] == parts[0].shape[1:] for one in parts):
        yield "a list instead of a tensor", f"{says}: torch.cat.", torch.cat(parts)


def _of_lists(seen: list[Any], right: list[Any]) -> list[tuple[bool, str, str]]:
    """Flat lists of numbers, texts or None: what may hold, its name, and what it says; the first that holds is told."""
    n, count = len(seen), len(right)
    first = next((i for i, (a, b) in enumerate(zip(seen, right, strict=False)) if a != b), min(n, count))
    has, differs = f"has {n} entries, not {count}", f"the first that differs is number {first}."
    same = n == count and seen != right
    return [
        (n > count and seen[:count] == right, "too long", f"{has}: the first {count} are right."),
        (n > count and seen[-count:] == right, "too long", f"{has}: the last {count} are right."),
        (n < count and right[:n] == seen, "too short", f"{has}; as far as it goes, it is right."),
        (0 < n < count and right[-n:] == seen, "too short", f"{has}; the beginning is missing."),
        (same and seen[::-1] == right, "reversed", "is right, but reversed."),
        (same and count > 2 and seen[:-1] == right[1:], "the first is missing", "begins with the second entry."),
        (same and sorted(map(str, seen)) == sorted(map(str, right)), "another order", "has another order."),
        (n > count, "too many entries", f"{has}; {differs}"),
        (n < count, "too few entries", f"{has}; {differs}"),
    ]
