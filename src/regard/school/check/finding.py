"""Finding: which of a learner's parameters are the projections; by name, and where names say nothing, by shape.

Every way to read them is an `Assignment`. Where names do not tell queries, keys and values apart, all ways are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Projection
from regard.support import vocabulary as words

APART = words.PROJECTIONS
_PACKED = (*words.PACKED_PROJECTIONS, *words.PACKED_PROJECTIONS_TOO)
_OUT = (*words.OUT_PROJECTIONS, *words.OUT_PROJECTIONS_TOO)


@dataclass(frozen=True)
class Assignment:
    """One way to read the parameters."""

    projections: Mapping[str, Projection]
    used: frozenset[str]  # names of parameters
    named: bool  # the learner's names say which is which
    is_linear: bool = True  # the weights are nn.Linear's, whose orientation is known
    is_list: bool = False  # each head has its own projections, in a list
    kv_heads: int | None = None

    @property
    def d_in(self) -> int:
        """The width that the projections read."""
        return self.projections["W_query"].weight.shape[1]


@dataclass(frozen=True)
class _Stem:
    """A projection of the learner: its name, weight and bias; orientation None where nothing says it."""

    name: str
    weight: Tensor
    bias: Tensor | None
    names: frozenset[str]
    transposed: bool | None

    def read(self, transposed: bool) -> Projection:
        return Projection(self.weight.t() if transposed else self.weight, self.bias)

    def orientations(self, d_in: int | None = None) -> tuple[bool, ...]:
        """Is the weight (in, out)? Where neither type nor bias says it, both are tried, the likelier first."""
        if self.transposed is not None:
            return (self.transposed,)
        rows, columns = self.weight.shape
        if self.bias is not None and rows != columns and len(self.bias) in (rows, columns):
            return (len(self.bias) == columns,)
        likely = rows == d_in if d_in and rows != columns and d_in in (rows, columns) else True
        return (likely, not likely)


def assignments(
    parameters: Sequence[Mapping[str, Any]],
    values: Mapping[str, Tensor],
    num_heads: int,
    d_in: int | None = None,
    kv_heads: int | None = None,
    names: Mapping[str, str] | None = None,
) -> list[Assignment]:
    """Every way to read the parameters as projections, the likeliest first."""
    stems = _stems([p for p in parameters if not p["is_mask"] and p["name"] in values], values)
    if names:
        return list(_mapped(stems, names, num_heads, d_in, kv_heads))
    result = [*_list_of_heads(stems, d_in), *_named(stems, num_heads, d_in, kv_heads)]
    result += _stacked(parameters, values, stems, num_heads, d_in)
    return result or list(_by_shape(stems, num_heads, d_in))


def _stems(parameters: Sequence[Mapping[str, Any]], values: Mapping[str, Tensor]) -> list[_Stem]:
    biases = {p["name"]: values[p["name"]] for p in parameters if len(p["shape"]) == 1}
    stems = []
    for p in parameters:
        name, shape = p["name"], p["shape"]
        is_conv = len(shape) > 2 and set(shape[2:]) == {1} and "Conv" in p["owner"]  # reads one token at a time
        if len(shape) != 2 and not is_conv:
            continue
        stem = name.removesuffix(".weight").removesuffix("_weight") or name
        bias = next((n for n in _bias_names(stem) if n in biases and len(biases[n]) in p["shape"]), None)
        owner = p["owner"]
        is_linear = is_conv or (owner.startswith("torch.nn.") and owner.endswith("Linear"))
        is_torch_attention = owner.endswith(".MultiheadAttention")
        transposed = True if owner.endswith("Conv1D") else False if is_linear or is_torch_attention else None
        used = frozenset({name} | ({bias} if bias else set()))
        stems.append(
            _Stem(
                stem,
                values[name].flatten(1) if is_conv else values[name],
                None if bias is None else biases[bias],
                used,
                transposed,
            )
        )
    return stems


def _bias_names(stem: str) -> list[str]:
    """What the bias of a weight may be called."""
    path, _, last = stem.rpartition(".")
    short = re.sub(r"(?i)^w_?", "", last)
    beside = (f"b_{short}", f"b{short}", f"bias_{short}", f"{short}_bias")
    return [f"{stem}.bias", f"{stem}_bias", f"{stem}.b", *(f"{path}.{n}".lstrip(".") for n in beside)]


def _row(names: Iterable[str]) -> tuple[str, ...] | None:
    """Of these names, those for queries, keys and values: as people write them, or alike but for one word.

    >>> _row(["q_mappings", "k_mappings", "v_mappings", "out"])
    ('q_mappings', 'k_mappings', 'v_mappings')
    """
    names = list(names)
    if row := next((row for row in APART if all(n in names for n in row)), None):
        return row
    alike: dict[tuple[str, str], dict[str, str]] = {}
    for name in names:
        if re.match(r"b_|b(?=[qkv]$)|.*(bias|norm|emb|pos)", name):
            continue
        for one in re.finditer(r"(?<![a-z])(quer(y|ies)|keys?|values?|[qkv])(?![a-z])", name):
            alike.setdefault((name[: one.start()], name[one.end() :]), {})[one[0][0]] = name
    return next((tuple(kinds[letter] for letter in "qkv") for kinds in alike.values() if len(kinds) == 3), None)


def _mapped(
    stems: Sequence[_Stem], names: Mapping[str, str], num_heads: int, d_in: int | None, kv_heads: int | None
) -> Iterator[Assignment]:
    """As the learner says which is which."""
    by_name = {stem.name: stem for stem in stems}
    missing = [n for n in names.values() if n.removesuffix(".weight") not in by_name]
    if missing:
        raise ValueError(f"no weight is called {', '.join(missing)}; there are {', '.join(by_name) or 'none'}")
    chosen = {ours: by_name[theirs.removesuffix(".weight")] for ours, theirs in names.items()}
    if wrong := set(chosen) - {*QKV, "qkv", "out_proj"}:
        raise ValueError(f"names are W_query, W_key, W_value or qkv, and out_proj; not {', '.join(sorted(wrong))}")
    if "qkv" in chosen:
        yield from _packed(chosen["qkv"], chosen.get("out_proj"), num_heads, d_in, kv_heads)
    elif all(one in chosen for one in QKV):
        yield from _apart([chosen[one] for one in QKV], chosen.get("out_proj"), d_in, named=True)
    else:
        raise ValueError(f"names give {', '.join(chosen)}; give W_query, W_key and W_value, or qkv")


def _named(stems: Sequence[_Stem], num_heads: int, d_in: int | None, kv_heads: int | None) -> Iterator[Assignment]:
    by_name = {stem.name.lower(): stem for stem in stems}
    last = {re.sub(r"\.\d+$", "", stem.name).rpartition(".")[2].lower(): stem for stem in stems}
    for names in (by_name, last):
        if row := _row(names):
            qkv = [names[n] for n in row]
            yield from _apart(qkv, _out(stems, names, qkv), d_in, named=True)
            return
        for n in _PACKED:
            if n in names and max(names[n].weight.shape) > min(names[n].weight.shape):
                yield from _packed(names[n], _out(stems, names, [names[n]]), num_heads, d_in, kv_heads)
                return
        q = next((names[row[0]] for row in APART if row[0] in names), None)
        kv = next((names[n] for n in ("to_kv", "kv", "kv_proj", "w_kv", "wkv", "key_value") if n in names), None)
        if q is not None and kv is not None:
            yield from _halves(q, kv, _out(stems, names, [q, kv]), d_in)
            return


def _out(stems: Sequence[_Stem], names: Mapping[str, _Stem], used: Sequence[_Stem]) -> _Stem | None:
    """The output projection: by its name, or the only weight that is left."""
    rest = [stem for stem in stems if stem not in used]
    by_name = next((names[n] for n in _OUT if n in names and names[n] in rest), None)
    return by_name or (rest[0] if len(rest) == 1 else None)


def _with_out(
    projections: Mapping[str, Projection], used: frozenset[str], out: _Stem | None, width: int, **options: Any
) -> Iterator[Assignment]:
    """The assignment with the output projection, in each of its orientations."""
    if out is None:
        yield Assignment(projections, used, **options)
        return
    for transposed in out.orientations(width):
        yield Assignment({**projections, "out_proj": out.read(transposed)}, used | out.names, **options)


def _apart(qkv: Sequence[_Stem], out: _Stem | None, d_in: int | None, named: bool) -> Iterator[Assignment]:
    used = frozenset[str]().union(*(stem.names for stem in qkv))
    for transposed in qkv[0].orientations(d_in):
        projections = {name: stem.read(transposed) for name, stem in zip(QKV, qkv, strict=True)}
        if len({p.weight.shape[1] for p in projections.values()}) > 1:
            continue
        is_linear = all(stem.transposed is False for stem in qkv)
        width = len(projections["W_query"].weight)
        yield from _with_out(projections, used, out, width, named=named, is_linear=is_linear)


def _halves(q: _Stem, kv: _Stem, out: _Stem | None, d_in: int | None) -> Iterator[Assignment]:
    """Queries apart, keys and values in one weight."""
    for transposed in q.orientations(d_in):
        weight, bias = kv.read(transposed)
        keys, values = weight.chunk(2)
        key_bias, value_bias = (None, None) if bias is None else bias.chunk(2)
        projections = {
            "W_query": q.read(transposed),
            "W_key": Projection(keys, key_bias),
            "W_value": Projection(values, value_bias),
        }
        if keys.shape[1] == projections["W_query"].weight.shape[1]:
            width = len(projections["W_query"].weight)
            yield from _with_out(projections, q.names | kv.names, out, width, named=True)


def _packed(
    stem: _Stem, out: _Stem | None, num_heads: int, d_in: int | None, kv_heads: int | None
) -> Iterator[Assignment]:
    """One weight for all three: in the order of its name, or where that says none, in any order; or head by head."""
    letters = "".join(re.findall("[qkv]", stem.name.rpartition(".")[2].lower()))
    order = letters if sorted(letters) == ["k", "q", "v"] else ""
    if "query_key_value" in stem.name.lower():
        order = "qkv"
    for transposed in stem.orientations(d_in):
        weight, bias = stem.read(transposed)
        rows, kv = len(weight), kv_heads or num_heads
        if rows % (num_heads + 2 * kv):
            continue
        D = rows // (num_heads + 2 * kv)
        orders = [order] if order else ["qkv", *("".join(p) for p in permutations("qkv") if "".join(p) != "qkv")]
        for one in orders if kv == num_heads else ["qkv"]:
            sizes = [(num_heads if letter == "q" else kv) * D for letter in one]
            yield from _unpacked(stem, out, weight.split(sizes), None if bias is None else bias.split(sizes), one)
        if kv == num_heads:
            apart = weight.unflatten(0, (num_heads, 3, D)).transpose(0, 1).flatten(1, 2).unbind()
            biases = None if bias is None else bias.unflatten(0, (num_heads, 3, D)).transpose(0, 1).flatten(1).unbind()
            yield from _unpacked(stem, out, apart, biases, order or "qkv")


def _unpacked(
    stem: _Stem, out: _Stem | None, weights: Sequence[Tensor], biases: Sequence[Tensor] | None, order: str
) -> Iterator[Assignment]:
    parts = {
        letter: Projection(weight, None if biases is None else biases[i])
        for i, (letter, weight) in enumerate(zip(order, weights, strict=True))
    }
    projections = dict(zip(QKV, (parts[letter] for letter in "qkv"), strict=True))
    yield from _with_out(
        projections, stem.names, out, len(parts["q"].weight), named=True, is_linear=stem.transposed is False
    )


def _list_of_heads(stems: Sequence[_Stem], d_in: int | None) -> Iterator[Assignment]:
    """Heads in a list, heads.0.W_query …, or lists of projections, W_query.0 …: the rows of head 0, then of head 1."""
    groups: dict[str, dict[int, dict[str, _Stem]]] = {}
    for stem in stems:
        if match := re.fullmatch(r"(.*?)\.?(\d+)\.(.+)", stem.name):
            groups.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3].rpartition(".")[2].lower()] = stem
        elif match := re.fullmatch(r"(.+)\.(\d+)", stem.name):
            groups.setdefault("", {}).setdefault(int(match[2]), {})[match[1].rpartition(".")[2].lower()] = stem
    for heads in groups.values():
        row = _row(set.intersection(*(set(head) for head in heads.values())))
        if row is None or sorted(heads) != list(range(len(heads))):
            continue
        per_head = [[heads[i][n] for n in row] for i in range(len(heads))]
        inside = [stem for head in per_head for stem in head]
        rest = [stem for stem in stems if stem not in inside]
        used = frozenset[str]().union(*(stem.names for stem in inside))
        for transposed in per_head[0][0].orientations(d_in):
            projections = {}
            for i, name in enumerate(QKV):
                parts = [head[i].read(transposed) for head in per_head]
                biases = [part.bias for part in parts if part.bias is not None]
                bias = torch.cat(biases) if len(biases) == len(parts) else None
                projections[name] = Projection(torch.cat([part.weight for part in parts]), bias)
            is_linear = per_head[0][0].transposed is False
            options = {"named": True, "is_linear": is_linear, "is_list": True, "kv_heads": len(heads)}
            out = rest[0] if len(rest) == 1 else None
            yield from _with_out(projections, used, out, len(projections["W_query"].weight), **options)
        return


def _stacked(
    parameters: Sequence[Mapping[str, Any]],
    values: Mapping[str, Tensor],
    stems: Sequence[_Stem],
    num_heads: int,
    d_in: int | None,
) -> Iterator[Assignment]:
    """Weights of all heads in one parameter of three axes: (heads, in, out), (heads, out, in) or (in, heads, out)."""
    stacked = [p["name"] for p in parameters if len(p["shape"]) == 3 and num_heads in p["shape"][:2]]
    if len(stacked) < 3:
        return
    names = {name.rpartition(".")[2].lower(): name for name in stacked}
    row = _row(names)
    qkv = [names[n] for n in row] if row else stacked[:3]
    over = [name for name in stacked if name not in qkv]
    biases = {name: next((values[n] for n in _bias_names(name) if n in values), None) for name in stacked}
    weights_only = [stem for stem in stems if not any(stem.weight is bias for bias in biases.values())]
    out = weights_only[0] if len(weights_only) == 1 else None
    shape = values[qkv[0]].shape
    ways = [(0, 2, 1), (0, 1, 2)] if shape[0] == num_heads else []
    ways += [(1, 2, 0)] if shape[1] == num_heads else []
    for axes in ways:
        weights = [values[name].permute(axes).flatten(0, 1) for name in qkv]
        if d_in is not None and weights[0].shape[1] != d_in:
            continue
        own = [None if (bias := biases[name]) is None else bias.flatten() for name in qkv]
        if any(bias is not None and len(bias) != len(weights[0]) for bias in own):
            continue
        projections = {n: Projection(w, bias) for n, w, bias in zip(QKV, weights, own, strict=True)}
        options = {"named": row is not None, "is_linear": False}
        if len(over) == 1 and values[over[0]].shape[0] == num_heads:  # (heads, D, E), summed over the heads
            joined = Projection(values[over[0]].flatten(0, 1).t(), biases[over[0]])
            yield Assignment({**projections, "out_proj": joined}, frozenset(stacked), **options)
        else:
            yield from _with_out(projections, frozenset(qkv), out, len(weights[0]), **options)


def _by_shape(stems: Sequence[_Stem], num_heads: int, d_in: int | None) -> Iterator[Assignment]:
    """Three weights that read x, in every order, and a fourth for the output; or one weight of three times the width."""
    packed = [stem for stem in stems if max(stem.weight.shape) == 3 * min(stem.weight.shape)]
    if len(packed) == 1 and len(stems) <= 2:
        rest = [stem for stem in stems if stem is not packed[0]]
        yield from _packed(packed[0], rest[0] if rest else None, num_heads, d_in, None)
    if not 3 <= len(stems) <= 4:
        return
    for order in permutations(range(len(stems)), 3):
        rest = [stem for i, stem in enumerate(stems) if i not in order]
        yield from _apart([stems[i] for i in order], rest[0] if rest else None, d_in, named=False)
