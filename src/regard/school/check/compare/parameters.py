"""Parameters: which of a learner's are the projections, by name or by shape; and which are the norm of x.

Every way to read them is an `Assignment`. Where names do not tell queries, keys and values apart, all ways are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mistakes.formula import QKV, Projection
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import MISTAKES
from regard.school.check.learner_code.protocol import ModuleContents, ParameterFacts
from regard.school.check.learner_code.text_hints import QKV_WORDS
from regard.support import vocabulary as words

APART = words.PROJECTIONS
_PACKED = (*words.PACKED_PROJECTIONS, *words.PACKED_PROJECTIONS_TOO)
_KEYS_AND_VALUES = ("to_kv", "kv", "kv_proj", "w_kv", "wkv", "key_value")
_OUT = (*words.OUT_PROJECTIONS, *words.OUT_PROJECTIONS_TOO)
Norm = Callable[[Tensor], Tensor]  # over the width of x


@dataclass(frozen=True)
class Assignment:
    """One way to read a layer: its projections, if it has any, and its number of heads."""

    projections: Mapping[str, Projection] = field(default_factory=dict)
    used: frozenset[str] = frozenset()  # names of parameters
    num_heads: int = 1
    named: bool = True  # the learner's names say which is which
    is_linear: bool = True  # the weights are nn.Linear's, whose orientation is known
    is_list: bool = False  # each head has its own projections, in a list

    @property
    def d_in(self) -> int:
        """The width that the projections read."""
        return self.projections["W_query"].weight.shape[1]

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Mistakes that can be told apart: without names nobody knows which projection is which."""
        if not self.named:
            known = ("one projection used twice", "not projected", "")
            return tuple(m for m in MISTAKES if m.step != "project" or (m.family in known and not m.rare))
        return MISTAKES if self.is_linear else tuple(m for m in MISTAKES if m.name != "transposed weights")


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

    @property
    def orders(self) -> list[str]:
        """The order of queries, keys and values in a packed weight, as its name says it; all where it does not."""
        if "query_key_value" in self.name.lower():
            return ["qkv"]
        letters = "".join(re.findall("[qkv]", self.name.rpartition(".")[2].lower()))
        return [letters] if sorted(letters) == ["k", "q", "v"] else ["".join(one) for one in permutations("qkv")]

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
    reader = _Reader(stems, num_heads, d_in, kv_heads or num_heads)
    if names:
        return list(reader.mapped(names))
    stacked = [p["name"] for p in parameters if len(p["shape"]) == 3 and num_heads in p["shape"][:2]]
    result = [*reader.list_of_heads(), *reader.named(), *reader.stacked(stacked, values)]
    return result or list(reader.by_shape())


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
    apart = [f"{b}.{last}" for b in ("b", "B", "bias", "biases")] if re.fullmatch("(?i)w|weights?", path) else []
    return [f"{stem}.bias", f"{stem}_bias", f"{stem}.b", *(f"{path}.{n}".lstrip(".") for n in beside), *apart]


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
        for letter, word in QKV_WORDS.items():
            for one in re.finditer(rf"(?<![a-z])({word})(?![a-z])", name):
                alike.setdefault((name[: one.start()], name[one.end() :]), {})[letter] = name
    return next((tuple(kinds[letter] for letter in "qkv") for kinds in alike.values() if len(kinds) == 3), None)


@dataclass(frozen=True)
class _Reader:
    """The weights of a layer, and what is known of its sizes. Each method is a way to read them, or several."""

    stems: Sequence[_Stem]
    num_heads: int
    d_in: int | None
    kv_heads: int

    def mapped(self, names: Mapping[str, str]) -> Iterator[Assignment]:
        """As the learner says which is which."""
        by_name = {stem.name: stem for stem in self.stems}
        missing = [n for n in names.values() if n.removesuffix(".weight") not in by_name]
        if missing:
            raise ValueError(f"no weight is called {', '.join(missing)}; there are {', '.join(by_name) or 'none'}")
        chosen = {ours: by_name[theirs.removesuffix(".weight")] for ours, theirs in names.items()}
        if wrong := set(chosen) - {*QKV, "qkv", "out_proj"}:
            raise ValueError(f"names are W_query, W_key, W_value or qkv, and out_proj; not {', '.join(sorted(wrong))}")
        if "qkv" in chosen:
            yield from self._packed(chosen["qkv"], chosen.get("out_proj"))
        elif all(one in chosen for one in QKV):
            yield from self._apart([[chosen[one]] for one in QKV], chosen.get("out_proj"))
        else:
            raise ValueError(f"names give {', '.join(chosen)}; give W_query, W_key and W_value, or qkv")

    def named(self) -> Iterator[Assignment]:
        """By the names that people give them: each apart, packed in one, or keys and values in one."""
        by_name = {stem.name.lower(): stem for stem in self.stems}
        last = {re.sub(r"\.\d+$", "", stem.name).rpartition(".")[2].lower(): stem for stem in self.stems}
        ways = (self._by_names(names) for names in (by_name, last))
        yield from next((one for one in ways if one is not None), ())

    def _by_names(self, names: Mapping[str, _Stem]) -> Iterator[Assignment] | None:
        """The ways to read weights of these names; None where the names say nothing."""
        if row := _row(names):
            qkv = [names[n] for n in row]
            return self._apart([[stem] for stem in qkv], self._out(names, qkv))
        for n in _PACKED:
            if n in names and max(names[n].weight.shape) > min(names[n].weight.shape):
                return self._packed(names[n], self._out(names, [names[n]]))
        q = next((names[row[0]] for row in APART if row[0] in names), None)
        if q is None:
            return None
        pair = next(([f"{n}.0", f"{n}.1"] for n in _KEYS_AND_VALUES if {f"{n}.0", f"{n}.1"} <= names.keys()), None)
        if pair is not None:
            apart = [q, *(names[n] for n in pair)]
            return self._apart([[stem] for stem in apart], self._out(names, apart))
        kv = next((names[n] for n in _KEYS_AND_VALUES if n in names), None)
        return None if kv is None else self._halves(q, kv, self._out(names, [q, kv]))

    def list_of_heads(self) -> Iterator[Assignment]:
        """Heads in a list, heads.0.W_query …, or lists of projections, W_query.0 …: the rows of head 0, then of 1."""
        groups: dict[str, dict[int, dict[str, _Stem]]] = {}  # by number, and by the last part of the name
        for stem in self.stems:
            if match := re.fullmatch(r"(.*?)\.?(\d+)\.(.+)", stem.name):
                group, number, name = match[1], match[2], match[3]
            elif match := re.fullmatch(r"(.+)\.(\d+)", stem.name):
                group, number, name = "", match[2], match[1]
            else:
                continue
            groups.setdefault(group, {}).setdefault(int(number), {})[name.rpartition(".")[2].lower()] = stem
        for heads in groups.values():
            row = _row(set.intersection(*(set(head) for head in heads.values())))
            if row is None or sorted(heads) != list(range(len(heads))):
                continue
            apart = [[heads[i][n] for i in range(len(heads))] for n in row]  # queries, keys and values of every head
            yield from self._apart(
                apart, self._rest([stem for part in apart for stem in part]), num_heads=len(heads), is_list=True
            )
            return

    def stacked(self, names: Sequence[str], values: Mapping[str, Tensor]) -> Iterator[Assignment]:
        """Weights of all heads in one parameter of three axes: (heads, in, out), (heads, out, in), (in, heads, out)."""
        if len(names) < 3:
            return
        last = {name.rpartition(".")[2].lower(): name for name in names}
        row = _row(last)
        qkv = [last[n] for n in row] if row else list(names[:3])
        over = [name for name in names if name not in qkv]
        biases = {name: next((values[n] for n in _bias_names(name) if n in values), None) for name in names}
        out = self._rest([stem for stem in self.stems if any(stem.weight is bias for bias in biases.values())])
        options: dict[str, Any] = {"num_heads": self.num_heads, "named": row is not None, "is_linear": False}
        for parts in self._unstacked([Projection(values[name], biases[name]) for name in qkv]):
            projections = dict(zip(QKV, parts, strict=True))
            if len(over) == 1 and len(values[over[0]]) == self.num_heads:  # (heads, D, E), summed over the heads
                joined = Projection(values[over[0]].flatten(0, 1).t(), biases[over[0]])
                yield Assignment({**projections, "out_proj": joined}, frozenset(names), **options)
            else:
                yield from self._with_out(projections, frozenset(qkv), out, **options)

    def _unstacked(self, stacked: Sequence[Projection]) -> Iterator[list[Projection]]:
        """Weights of three axes, with their biases, as (heads × out, in), in each way that their shapes allow."""
        for axes in ((0, 2, 1), (0, 1, 2), (1, 2, 0)):
            if stacked[0].weight.shape[axes[0]] == self.num_heads:
                weights = [one.weight.permute(axes).flatten(0, 1) for one in stacked]
                biases = [None if one.bias is None else one.bias.flatten() for one in stacked]
                rows, columns = weights[0].shape
                if columns == (self.d_in or columns) and all(bias is None or len(bias) == rows for bias in biases):
                    yield list(map(Projection, weights, biases))

    def by_shape(self) -> Iterator[Assignment]:
        """Three weights that read x, in every order, and a fourth for the output; or one of three times the width."""
        stems = self.stems
        packed = [stem for stem in stems if max(stem.weight.shape) == 3 * min(stem.weight.shape)]
        if len(packed) == 1 and len(stems) <= 2:
            yield from replace(self, kv_heads=self.num_heads)._packed(packed[0], self._rest(packed))
        multi_query = [stem for stem in stems if self._is_multi_query(stem)]
        if len(multi_query) == 1 and len(stems) <= 2 and not packed:
            yield from self._packed(multi_query[0], self._rest(multi_query))
        if 3 <= len(stems) <= 4:
            for order in permutations(stems, 3):
                yield from self._apart([[stem] for stem in order], self._rest(order), named=False)

    def _rest(self, used: Sequence[_Stem]) -> _Stem | None:
        """The only weight that is left."""
        rest = [stem for stem in self.stems if stem not in used]
        return rest[0] if len(rest) == 1 else None

    def _out(self, names: Mapping[str, _Stem], used: Sequence[_Stem]) -> _Stem | None:
        """The output projection: by its name, or the only weight that is left."""
        by_name = (names[n] for n in _OUT if n in names and names[n] not in used)
        return next(by_name, None) or self._rest(used)

    def _with_out(
        self, projections: Mapping[str, Projection], used: frozenset[str], out: _Stem | None, **options: Any
    ) -> Iterator[Assignment]:
        """The assignment with the output projection, in each of its orientations."""
        options = {"num_heads": self.num_heads, **options}
        if out is None:
            yield Assignment(projections, used, **options)
            return
        for transposed in out.orientations(len(projections["W_query"].weight)):
            yield Assignment({**projections, "out_proj": out.read(transposed)}, used | out.names, **options)

    def _apart(self, qkv: Sequence[Sequence[_Stem]], out: _Stem | None, **options: Any) -> Iterator[Assignment]:
        """Queries, keys and values apart: each in one weight, or in one for each head."""
        stems = [stem for part in qkv for stem in part]
        used = frozenset[str]().union(*(stem.names for stem in stems))
        options["is_linear"] = all(stem.transposed is False for stem in stems)
        for transposed in stems[0].orientations(self.d_in):
            joined = [_joined([stem.read(transposed) for stem in part]) for part in qkv]
            if len({one.weight.shape[1] for one in joined}) == 1:
                yield from self._with_out(dict(zip(QKV, joined, strict=True)), used, out, **options)

    def _halves(self, q: _Stem, kv: _Stem, out: _Stem | None) -> Iterator[Assignment]:
        """Queries apart, keys and values in one weight."""
        for transposed in q.orientations(self.d_in):
            weight, bias = kv.read(transposed)
            halves = map(Projection, weight.chunk(2), (None, None) if bias is None else bias.chunk(2))
            projections = dict(zip(QKV, (q.read(transposed), *halves), strict=True))
            if len({p.weight.shape[1] for p in projections.values()}) == 1:
                yield from self._with_out(projections, q.names | kv.names, out)

    def _is_multi_query(self, stem: _Stem) -> bool:
        """Is it one weight for the queries of all heads, and for one head of keys and one of values?"""
        rows, width = max(stem.weight.shape), min(stem.weight.shape)
        return self.num_heads > 1 and width % self.num_heads == 0 and rows == width + 2 * width // self.num_heads

    def _packed(self, stem: _Stem, out: _Stem | None) -> Iterator[Assignment]:
        """One weight for all: in the order of its name, or where that says none, in any order; or head by head."""
        H, kv, orders = self.num_heads, 1 if self._is_multi_query(stem) else self.kv_heads, stem.orders
        for transposed in stem.orientations(self.d_in):
            packed = stem.read(transposed)
            D, rest = divmod(len(packed.weight), H + 2 * kv)
            if rest:
                continue
            ways: list[Any] = [(one, *packed) for one in (orders if kv == H else ["qkv"])]
            if kv == H:  # all of head 0, then all of head 1
                by_part = [t if t is None else t.unflatten(0, (H, 3, D)).transpose(0, 1).flatten(0, 2) for t in packed]
                ways.append((orders[0], *by_part))
            for one, weight, bias in ways:
                sizes = [(H if letter == "q" else kv) * D for letter in one]
                biases = (None, None, None) if bias is None else bias.split(sizes)
                parts = dict(zip(one, map(Projection, weight.split(sizes), biases), strict=True))
                projections = {name: parts[letter] for name, letter in zip(QKV, "qkv", strict=True)}
                yield from self._with_out(projections, stem.names, out, is_linear=stem.transposed is False)


def _joined(heads: Sequence[Projection]) -> Projection:
    """The projections of all heads as one."""
    biases = [head.bias for head in heads if head.bias is not None]
    weight = torch.cat([head.weight for head in heads])
    return Projection(weight, torch.cat(biases) if len(biases) == len(heads) else None)


def find_norm(contents: ModuleContents, weights: Mapping[str, Tensor], d_in: int) -> Norm | None:
    """The only norm of a layer that fits x; None where there is none, or several."""
    owners = {p["name"]: p["owner"] for p in contents.get("parameters", ()) if p["shape"] == [d_in]}
    names = [n for n, owner in owners.items() if owner.endswith("Norm") and n.endswith("weight") and n in weights]
    if len(names) != 1:
        return None
    weight, bias = weights[names[0]], weights.get(names[0].removesuffix("weight") + "bias")
    if owners[names[0]].endswith("RMSNorm"):
        return partial(F.rms_norm, normalized_shape=(d_in,), weight=weight, eps=1e-6)
    return partial(F.layer_norm, normalized_shape=(d_in,), weight=weight, bias=bias)
