"""Finding: which of a learner's parameters are the projections; by name, and where names say nothing, by shape.

Every way to read them is an `Assignment`. Where names do not tell queries, keys and values apart, all ways are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import Projection

_WORDS = (("query", "key", "value"), ("queries", "keys", "values"), ("q", "k", "v"))
_FORMS = ("w_{}", "w{}", "{}", "{}_proj", "to_{}", "{}_linear", "{}_lin", "lin_{}", "linear_{}", "{}_layer", "fc_{}", "proj_{}")
_APART = tuple(tuple(form.format(word) for word in words) for form in _FORMS for words in _WORDS)
_PACKED = ("qkv_proj", "qkv", "in_proj", "c_attn", "to_qkv", "w_qkv", "wqkv", "query_key_value", "attn_proj", "qkv_linear")
_OUT = (
    *("out_proj", "o_proj", "w_o", "wo", "to_out", "to_out.0", "c_proj", "proj", "output_proj", "out", "fc_out", "fc"),
    *("output", "o_linear", "out_linear", "w_out", "dense", "linear", "fc_o", "lin_out", "projection", "proj_out"),
)


@dataclass(frozen=True)
class Assignment:
    """One way to read the parameters. named: the learner's names say which is which."""

    projections: Mapping[str, Projection]
    used: frozenset[str]  # names of parameters
    named: bool
    linear: bool = True  # the weights are nn.Linear's, whose orientation is known


@dataclass(frozen=True)
class _Stem:
    """A projection of the learner: its name, weight and bias."""

    name: str
    weight: Tensor
    bias: Tensor | None
    names: frozenset[str]
    is_linear: bool

    def read(self, transposed: bool) -> Projection:
        return Projection(self.weight.t() if transposed else self.weight, self.bias)


def assignments(
    parameters: Sequence[Mapping[str, Any]], values: Mapping[str, Tensor], d_in: int, num_heads: int
) -> list[Assignment]:
    """Every way to read the parameters as projections, the likeliest first."""
    stems = _stems(parameters, values)
    heads = _heads(stems)
    found = [*_named(stems, d_in, num_heads), *(_joined(heads, stems, d_in) if heads else ())]
    found += _stacked(parameters, values, stems, d_in, num_heads)
    return found or list(_by_shape(stems, d_in))


def _stems(parameters: Sequence[Mapping[str, Any]], values: Mapping[str, Tensor]) -> list[_Stem]:
    biases = {p["name"]: values[p["name"]] for p in parameters if len(p["shape"]) == 1}
    stems = []
    for p in parameters:
        if len(p["shape"]) != 2:
            continue
        name = p["name"]
        stem = name.removesuffix(".weight").removesuffix("_weight")
        candidates = (f"{stem}.bias", f"{stem}_bias", f"{stem}.b", f"b_{stem.removeprefix('W_').removeprefix('w_')}")
        bias = next((n for n in candidates if n in biases), None)
        names = frozenset({name} | ({bias} if bias else set()))
        is_linear = p["owner"] in ("Linear", "NonDynamicallyQuantizableLinear", "LoRACompatibleLinear") or name != stem
        stems.append(_Stem(stem, values[name], None if bias is None else biases[bias], names, is_linear))
    return stems


def _named(stems: Sequence[_Stem], d_in: int, num_heads: int) -> Iterator[Assignment]:
    by_name = {stem.name.lower(): stem for stem in stems}
    last = {stem.name.rpartition(".")[2].lower(): stem for stem in stems}
    for names in (by_name, last):
        out = next((names[n] for n in _OUT if n in names), None)
        for row in _APART:
            if all(n in names for n in row):
                yield from _apart([names[n] for n in row], out, d_in, named=True)
                return
        for n in _PACKED:
            if n in names:
                yield from _packed(names[n], out, d_in, num_heads)
                return


def _apart(qkv: Sequence[_Stem], out: _Stem | None, d_in: int, named: bool) -> Iterator[Assignment]:
    for transposed in _orientations(qkv[0], d_in):
        for out_transposed in _orientations(out, 0) if out is not None else (False,):
            projections = {
                name: stem.read(transposed) for name, stem in zip(("W_query", "W_key", "W_value"), qkv, strict=True)
            }
            used = frozenset().union(*(stem.names for stem in qkv))
            if out is not None:
                projections["out_proj"] = out.read(out_transposed)
                used |= out.names
            yield Assignment(projections, used, named, all(stem.is_linear for stem in qkv))


def _packed(stem: _Stem, out: _Stem | None, d_in: int, num_heads: int) -> Iterator[Assignment]:
    for transposed in _orientations(stem, d_in):
        weight, bias = stem.read(transposed)
        rows = len(weight)
        if rows % 3:
            continue
        for order in ("q k v", "by head"):
            if order == "by head" and rows % (3 * num_heads):
                continue
            parts = []
            for t in (weight, bias):
                if t is None:
                    parts.append((None, None, None))
                elif order == "q k v":
                    parts.append(t.chunk(3))
                else:
                    parts.append(tuple(t.unflatten(0, (num_heads, 3, -1)).transpose(0, 1).flatten(1, 2)))
            projections = {
                name: Projection(w, b)
                for name, w, b in zip(("W_query", "W_key", "W_value"), parts[0], parts[1], strict=True)
            }
            for out_transposed in _orientations(out, 0) if out is not None else (False,):
                used = stem.names | (out.names if out is not None else frozenset())
                with_out = projections | ({} if out is None else {"out_proj": out.read(out_transposed)})
                yield Assignment(with_out, used, named=True, linear=stem.is_linear)


def _orientations(stem: _Stem | None, d_in: int) -> tuple[bool, ...]:
    """Is the weight (in, out)? nn.Linear's is not; of a bare parameter the shape decides, or both are tried."""
    if stem is None or stem.is_linear:
        return (False,)
    rows, columns = stem.weight.shape
    if d_in and rows != columns and d_in in (rows, columns):
        return (rows == d_in,)
    return (True, False)


def _heads(stems: Sequence[_Stem]) -> dict[str, list[_Stem]]:
    """Projections of heads that are kept in a list, heads.0.W_query, …: head number → its stems."""
    groups: dict[str, dict[str, list[_Stem]]] = {}
    for stem in stems:
        match = re.fullmatch(r"(.*?)\.?(\d+)(?:\.(.+))?", stem.name)
        if match and match[3]:
            groups.setdefault(match[1], {}).setdefault(match[2], []).append(stem)
    return next((heads for heads in groups.values() if len(heads) > 1 and all(len(h) >= 3 for h in heads.values())), {})


def _joined(heads: Mapping[str, list[_Stem]], stems: Sequence[_Stem], d_in: int) -> Iterator[Assignment]:
    """Heads in a list, joined: the rows of head 0, then of head 1."""
    per_head = []
    for number in sorted(heads, key=int):
        names = {stem.name.rpartition(".")[2].lower(): stem for stem in heads[number]}
        row = next((row for row in _APART if all(n in names for n in row)), None)
        if row is None:
            return
        per_head.append([names[n] for n in row])
    inside = {stem.name for group in heads.values() for stem in group}
    rest = [stem for stem in stems if stem.name not in inside]
    out = rest[0] if len(rest) == 1 else None
    for transposed in _orientations(per_head[0][0], d_in):
        projections, used = {}, frozenset[str]()
        for i, name in enumerate(("W_query", "W_key", "W_value")):
            parts = [one[i].read(transposed) for one in per_head]
            biases = [part.bias for part in parts]
            bias = None if biases[0] is None else torch.cat([b for b in biases if b is not None])
            projections[name] = Projection(torch.cat([part.weight for part in parts]), bias)
            used |= frozenset().union(*(one[i].names for one in per_head))
        if out is not None:
            projections["out_proj"] = out.read(False)
            used |= out.names
        yield Assignment(projections, used, named=True, linear=per_head[0][0].is_linear)


def _stacked(
    parameters: Sequence[Mapping[str, Any]],
    values: Mapping[str, Tensor],
    stems: Sequence[_Stem],
    d_in: int,
    num_heads: int,
) -> Iterator[Assignment]:
    """Weights of all heads in one parameter of three axes, (heads, in, out) or (heads, out, in)."""
    stacked = [p["name"] for p in parameters if len(p["shape"]) == 3 and p["shape"][0] == num_heads]
    if len(stacked) < 3:
        return
    names = {name.lower(): name for name in stacked}
    row = next((row for row in _APART if all(n in names for n in row)), None)
    qkv = [names[n] for n in row] if row else stacked[:3]
    out = stems[0] if len(stems) == 1 else None
    for axes in ((0, 2, 1), (0, 1, 2)):
        weights = [values[name].permute(axes).flatten(0, 1) for name in qkv]
        if weights[0].shape[1] != d_in:
            continue
        for out_transposed in _orientations(out, 0) if out is not None else (False,):
            projections = {n: Projection(w) for n, w in zip(("W_query", "W_key", "W_value"), weights, strict=True)}
            used = frozenset(qkv)
            if out is not None:
                projections["out_proj"] = out.read(out_transposed)
                used |= out.names
            yield Assignment(projections, used, named=row is not None, linear=False)


def _by_shape(stems: Sequence[_Stem], d_in: int) -> Iterator[Assignment]:
    """Three weights that read x, in every order, and a fourth for the output."""
    if not 3 <= len(stems) <= 4:
        return
    for order in permutations(range(len(stems)), 3):
        rest = [stem for i, stem in enumerate(stems) if i not in order]
        qkv = [stems[i] for i in order]
        if len({tuple(stem.weight.shape) for stem in qkv}) > 2:
            continue
        yield from _apart(qkv, rest[0] if rest else None, d_in, named=False)
