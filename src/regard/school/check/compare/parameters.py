"""Parameters: which of a learner's are the projections, by name or by shape; and which are the norm of x.

Every way to read them is an `Assignment`. Where names do not tell queries, keys and values apart, all ways are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mistakes.formula import QKV, Projection
from regard.school.check.learner_code.protocol import ModuleContents, ParameterFacts
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
    parameters: Sequence[ParameterFacts],
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


def _stems(parameters: Sequence[ParameterFacts], values: Mapping[str, Tensor]) -> list[_Stem]:
    biases = {p["name"]: values[p["name"]] for p in parameters if len(p["shape"]) == 1}
    stems = []
    for p in parameters:
        name, shape, owner = p["name"], p["shape"], p["owner"]
        is_conv = len(shape) > 2 and set(shape[2:]) == {1} and "Conv" in owner  # reads one token at a time
        if len(shape) != 2 and not is_conv:
            continue
        stem = name.removesuffix(".weight").removesuffix("_weight") or name
        bias = next((n for n in _bias_names(stem) if n in biases and len(biases[n]) in shape), None)
        used = frozenset({name} | ({bias} if bias else set()))
        weight = values[name].flatten(1) if is_conv else values[name]
        stems.append(_Stem(stem, weight, biases[bias] if bias else None, used, _is_transposed(owner, is_conv)))
    return stems


def _is_transposed(owner: str, is_conv: bool) -> bool | None:
    """Does a module of this class keep its weight as (in, out)? None where nothing says so."""
    if owner.endswith("Conv1D"):
        return True
    is_linear = owner.startswith("torch.nn.") and owner.endswith("Linear")
    return False if is_conv or is_linear or owner.endswith(".MultiheadAttention") else None


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
    return by_name or _only(rest)


def _with_out(
    projections: Mapping[str, Projection], used: frozenset[str], out: _Stem | None, **options: Any
) -> Iterator[Assignment]:
    """The assignment with the output projection, in each of its orientations."""
    if out is None:
        yield Assignment(projections, used, **options)
        return
    for transposed in out.orientations(len(projections["W_query"].weight)):
        yield Assignment({**projections, "out_proj": out.read(transposed)}, used | out.names, **options)


def _apart(qkv: Sequence[_Stem], out: _Stem | None, d_in: int | None, named: bool) -> Iterator[Assignment]:
    used = frozenset[str]().union(*(stem.names for stem in qkv))
    for transposed in qkv[0].orientations(d_in):
        projections = {name: stem.read(transposed) for name, stem in zip(QKV, qkv, strict=True)}
        if len({p.weight.shape[1] for p in projections.values()}) > 1:
            continue
        is_linear = all(stem.transposed is False for stem in qkv)
        yield from _with_out(projections, used, out, named=named, is_linear=is_linear)


def _halves(q: _Stem, kv: _Stem, out: _Stem | None, d_in: int | None) -> Iterator[Assignment]:
    """Queries apart, keys and values in one weight."""
    for transposed in q.orientations(d_in):
        weight, bias = kv.read(transposed)
        halves = map(Projection, weight.chunk(2), (None, None) if bias is None else bias.chunk(2))
        projections = dict(zip(QKV, (q.read(transposed), *halves), strict=True))
        if len({p.weight.shape[1] for p in projections.values()}) == 1:
            yield from _with_out(projections, q.names | kv.names, out, named=True)


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
        orders = [order] if order else ["".join(letters) for letters in permutations("qkv")]
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
    parts = dict(zip(order, map(Projection, weights, biases or (None, None, None)), strict=True))
    projections = {name: parts[letter] for name, letter in zip(QKV, "qkv", strict=True)}
    yield from _with_out(projections, stem.names, out, named=True, is_linear=stem.transposed is False)


def _list_of_heads(stems: Sequence[_Stem], d_in: int | None) -> Iterator[Assignment]:
    """Heads in a list, heads.0.W_query …, or lists of projections, W_query.0 …: the rows of head 0, then of head 1."""
    for heads in _numbered(stems):
        row = _row(set.intersection(*(set(head) for head in heads.values())))
        if row is None or sorted(heads) != list(range(len(heads))):
            continue
        apart = [[heads[i][n] for i in range(len(heads))] for n in row]  # queries, keys and values of every head
        inside = [stem for part in apart for stem in part]
        rest = [stem for stem in stems if stem not in inside]
        used = frozenset[str]().union(*(stem.names for stem in inside))
        is_linear = inside[0].transposed is False
        for transposed in inside[0].orientations(d_in):
            joined = [_joined([stem.read(transposed) for stem in part]) for part in apart]
            projections = dict(zip(QKV, joined, strict=True))
            options = {"named": True, "is_linear": is_linear, "is_list": True, "kv_heads": len(heads)}
            yield from _with_out(projections, used, _only(rest), **options)
        return


def _numbered(stems: Sequence[_Stem]) -> Iterable[dict[int, dict[str, _Stem]]]:
    """Projections with a number in their names: by number, and by the last part of the name."""
    groups: dict[str, dict[int, dict[str, _Stem]]] = {}
    for stem in stems:
        if match := re.fullmatch(r"(.*?)\.?(\d+)\.(.+)", stem.name):
            groups.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3].rpartition(".")[2].lower()] = stem
        elif match := re.fullmatch(r"(.+)\.(\d+)", stem.name):
            groups.setdefault("", {}).setdefault(int(match[2]), {})[match[1].rpartition(".")[2].lower()] = stem
    return groups.values()


def _joined(heads: Sequence[Projection]) -> Projection:
    """The projections of all heads as one."""
    biases = [head.bias for head in heads if head.bias is not None]
    return Projection(
        torch.cat([head.weight for head in heads]), torch.cat(biases) if len(biases) == len(heads) else None
    )


def _only(stems: Sequence[_Stem]) -> _Stem | None:
    return stems[0] if len(stems) == 1 else None


def _stacked(
    parameters: Sequence[ParameterFacts],
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
    out = _only([stem for stem in stems if not any(stem.weight is bias for bias in biases.values())])
    options = {"named": row is not None, "is_linear": False}
    for parts in _unstacked([(values[name], biases[name]) for name in qkv], num_heads, d_in):
        projections = dict(zip(QKV, parts, strict=True))
        if len(over) == 1 and len(values[over[0]]) == num_heads:  # (heads, D, E), summed over the heads
            joined = Projection(values[over[0]].flatten(0, 1).t(), biases[over[0]])
            yield Assignment({**projections, "out_proj": joined}, frozenset(stacked), **options)
        else:
            yield from _with_out(projections, frozenset(qkv), out, **options)


def _unstacked(
    stacked: Sequence[tuple[Tensor, Tensor | None]], num_heads: int, d_in: int | None
) -> Iterator[list[Projection]]:
    """Weights of three axes, with their biases, as (heads × out, in), in each way that their shapes allow."""
    shape = stacked[0][0].shape
    ways = [(0, 2, 1), (0, 1, 2)] if shape[0] == num_heads else []
    ways += [(1, 2, 0)] if shape[1] == num_heads else []
    for axes in ways:
        parts = [
            Projection(weight.permute(axes).flatten(0, 1), None if bias is None else bias.flatten())
            for weight, bias in stacked
        ]
        rows, columns = parts[0].weight.shape
        if columns == (d_in or columns) and all(part.bias is None or len(part.bias) == rows for part in parts):
            yield parts


def _by_shape(stems: Sequence[_Stem], num_heads: int, d_in: int | None) -> Iterator[Assignment]:
    """Three weights that read x, in every order, and a fourth for the output; or one of three times the width."""
    packed = [stem for stem in stems if max(stem.weight.shape) == 3 * min(stem.weight.shape)]
    if len(packed) == 1 and len(stems) <= 2:
        rest = [stem for stem in stems if stem is not packed[0]]
        yield from _packed(packed[0], _only(rest), num_heads, d_in, None)
    if not 3 <= len(stems) <= 4:
        return
    for order in permutations(range(len(stems)), 3):
        rest = [stem for i, stem in enumerate(stems) if i not in order]
        yield from _apart([stems[i] for i in order], _only(rest), d_in, named=False)


class InputNorm(NamedTuple):
    """A norm over the width of x: with a bias, or with a weight only, which may be an RMSNorm."""

    weight: Tensor
    bias: Tensor | None
    is_rms: bool

    def __call__(self, x: Tensor) -> Tensor:
        if self.is_rms:
            return F.rms_norm(x, x.shape[-1:], self.weight, eps=1e-6)
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias)


def find_norm(contents: ModuleContents, weights: Mapping[str, Tensor], d_in: int) -> InputNorm | None:
    """The only norm of a layer that fits x; None where there is none, or several."""
    owners = {p["name"]: p["owner"] for p in contents.get("parameters", ()) if p["shape"] == [d_in]}
    names = [n for n, owner in owners.items() if owner.endswith("Norm") and n.endswith("weight") and n in weights]
    if len(names) != 1:
        return None
    bias = weights.get(names[0].removesuffix("weight") + "bias")
    return InputNorm(weights[names[0]], bias, owners[names[0]].endswith("RMSNorm"))
