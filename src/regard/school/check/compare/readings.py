"""Readings: which parameters of a layer are its projections, for how many heads, and how wide x is then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.school.check.compare import constructor_arguments as arguments
from regard.school.check.compare.constructor_arguments import has_config, takes
from regard.school.check.compare.parameters import Assignment, assignments

if TYPE_CHECKING:
    from regard.school.check.compare.experiment import Attempt


def readings_of(result: Attempt, weights: Mapping[str, Tensor]) -> Iterator[Assignment]:
    """Every way to read the parameters of a layer as projections, the likeliest first."""
    subject, sizes, contents = result.subject, result.sizes, result.observation.contents
    if any("parametrizations." in name for name in weights):
        return  # the projections are made of them: a run shows how
    kv_heads, attributes = sizes.kv_heads, contents["attributes"]
    if "num_kv_heads" not in result.built.roles.values() and (subject.is_built or has_config(subject.described)):
        kv_heads = next(
            (int(attributes[n]) for n in arguments.KV_HEADS if isinstance(attributes.get(n), int)), kv_heads
        )
    d_in = None if subject.is_built or not takes(subject.described, ("d_in",)) else sizes.d_in
    for heads in _head_counts(result):
        for one in assignments(contents["parameters"], weights, heads, d_in, kv_heads, result.request.names):
            rows, number = len(one.projections["W_query"].weight), one.num_heads
            is_piece = one.d_in * number in (sizes.width, sizes.d_in) and not subject.is_built
            if rows and number and (rows % number == 0 or is_piece):
                yield one


def _head_counts(result: Attempt) -> list[int]:
    """The number of heads: as built, as an attribute says, or all that divide the width."""
    subject, contents, own = result.subject, result.observation.contents, result.request.own
    attributes: Mapping[str, Any] = contents["attributes"]
    given = [int(own[n]) for n in arguments.HEADS if n in own]
    if given or "num_heads" in result.built.roles.values():
        return given or [result.sizes.num_heads]
    named = given or [attributes[n] for n in arguments.HEADS if type(attributes.get(n)) is int and attributes[n] > 0]
    if named:
        return named[:1]
    if not subject.is_built and not has_config(subject.described) and "multi" not in subject.described["name"].lower():
        return [1]
    widest = max((max(p["shape"]) for p in contents["parameters"] if len(p["shape"]) > 1), default=1)
    return [1, *(h for h in range(2, min(widest, 64) + 1) if widest % h == 0)]


def input_width(readings: Sequence[Assignment], result: Attempt) -> int:
    """d_in: what the projections read."""
    first, sizes, is_built = readings[0], result.sizes, result.subject.is_built
    if not first.projections:
        return sizes.d_in
    widths = () if is_built else (sizes.d_in, sizes.width)
    columns = {one.d_in for one in readings}
    if not columns & set(widths):  # each head projects its own piece of x
        pieces = {c * one.num_heads for c in columns for one in readings}
        fitting = [width for width in widths if width in pieces and width % sizes.num_heads == 0]
        if fitting and not has_config(result.subject.described):
            return fitting[0]
    shape = first.projections["W_query"].weight.shape
    return sizes.d_in if not is_built and sizes.d_in in shape and first.d_in not in widths else first.d_in
