"""Constructor arguments: what a learner's class is built with. Every argument has a role: a width, a number of heads.

A role is known by the name of the argument, or is found by trial (recipes.py). A configuration is its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq
from typing import Any

from regard.school.check.learner_code.config_reads import config_reads
from regard.school.check.learner_code.protocol import ArgumentFacts, Description
from regard.school.check.learner_code.text_hints import own_text
from regard.support import vocabulary as words
from regard.support.vocabulary import BIAS, WIDTH_IN, WIDTH_OUT


@dataclass(frozen=True)
class ProbeSizes:
    """The sizes of one experiment. All are different, so that no axis can be taken for another."""

    d_in: int = 13
    num_heads: int = 3
    head_dim: int = 7
    context_length: int = 11
    B: int = 2
    T: int = 5
    kv_heads: int | None = None

    @property
    def width(self) -> int:
        """d_out: all heads together."""
        return self.num_heads * self.head_dim

    @property
    def grid(self) -> tuple[int, int]:
        """The tokens as rows and columns of an image."""
        rows = next(h for h in range(int(self.T**0.5), 0, -1) if self.T % h == 0)
        return rows, self.T // rows


# The first that a class can be built with is used; the others are for layers that insist on even sizes, or on squares.
PROBES = (
    ProbeSizes(),
    ProbeSizes(d_in=24, num_heads=4, head_dim=8),
    ProbeSizes(d_in=96, num_heads=4, head_dim=16, context_length=19, T=16),
)
GROUPED = ProbeSizes(num_heads=6, head_dim=7, kv_heads=3)
GROUPED_EVEN = ProbeSizes(d_in=24, num_heads=4, head_dim=8, kv_heads=2)  # for pairs of numbers that are rotated
# A finding counts if it is also made at other sizes.
OTHERS = (
    ProbeSizes(d_in=17, num_heads=5, head_dim=3, context_length=13, B=3, T=7),
    ProbeSizes(d_in=20, num_heads=2, head_dim=6, context_length=13, B=3, T=7),
)
# Where it runs at none of them: heads of a multiple of four; then tokens that are a square.
LAST_OTHERS = (
    ProbeSizes(d_in=40, num_heads=2, head_dim=8, context_length=13, B=3, T=7),
    ProbeSizes(d_in=96, num_heads=2, head_dim=32, context_length=67, B=3, T=64),
)
OTHER_GROUPED = ProbeSizes(d_in=17, num_heads=4, head_dim=5, context_length=13, B=3, T=7, kv_heads=2)

# Among the arguments of a layer, the names that may be something else elsewhere are known too.
WIDTH = (*words.WIDTH, *words.WIDTH_TOO)
HEADS = (*words.HEADS, *words.HEADS_TOO)
HEAD_DIM = (*words.HEAD_DIM, *words.HEAD_DIM_TOO)
KV_HEADS = (*words.KV_HEADS, *words.KV_HEADS_TOO)
CONTEXT = (*words.CONTEXT, *words.CONTEXT_TOO)
DROPOUT = (*words.DROPOUT, *words.DROPOUT_TOO)
CAUSAL = (*words.CAUSAL, *words.CAUSAL_TOO)
CONFIG = ("config", "cfg", "args", "params", "conf", "hparams", "opt", "settings")

# The role of every known name; where two lists have a name, the first.
ROLES: dict[str, str] = {
    name: role
    for role, names in reversed(
        (
            ("d_in", WIDTH_IN),
            ("d_out", WIDTH_OUT),
            ("d_model", WIDTH),
            ("num_heads", HEADS),
            ("num_kv_heads", KV_HEADS),
            ("head_dim", HEAD_DIM),
            ("context_length", CONTEXT),
            ("dropout", DROPOUT),
            ("kept", words.KEPT),
            ("bias", BIAS),
            ("causal", CAUSAL),
            ("theta", words.ROTARY_BASE),
            ("vocab_size", words.VOCABULARY),
            ("num_layers", words.LAYERS),
            ("d_ff", words.INNER_WIDTH),
            ("temperature", ("temperature",)),
            ("grid", ("grid", "grid_size", "window_size", "input_resolution")),
            ("device", ("device",)),
            ("none", ("dtype",)),
        )
    )
    for name in names
}
KEEP = "keep"  # the role of an argument that keeps its default
_KEPT = ("bias", "causal", "theta")  # which keep their default


@dataclass(frozen=True)
class Setting:
    """An argument of a constructor, or a field of a configuration that it takes."""

    path: tuple[str, ...]
    required: bool = True
    told: str = ""  # its role, where something else than its name says it
    default: Any = None  # None where it has none, or it is not known
    is_made: bool = False  # it may be a property: the configuration is known, and does not take it

    @property
    def key(self) -> str:
        """As it is told: config.n_head."""
        return ".".join(self.path)

    @property
    def role(self) -> str:
        """What it is, by its name; "" where that says nothing."""
        if self.told or self.path[-1] in CONFIG:
            return self.told or "config"
        return KEEP if self.named in _KEPT and not self.required else self.named

    @property
    def named(self) -> str:
        """The role that its name has; "" where it has none."""
        name = self.path[-1]
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
        return ROLES.get(name) or ROLES.get(snake, "")

    @property
    def likely_role(self) -> str:
        """Its role; where its name does not say it, a guess or its default."""
        return self.role or (guess_role(self.path[-1]) if self.required else KEEP)


@dataclass(frozen=True)
class Built:
    """Arguments for a constructor, and the names that are not known."""

    arguments: dict[str, Any] | None = None  # None for what is built already
    unknown: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()  # names whose role is a guess that nothing confirmed
    sizes: dict[str, Any] = field(default_factory=dict)  # those of them that are sizes, to tell the learner
    roles: Mapping[str, str] = field(default_factory=dict)  # of each of them, by its key


def takes(described: Description, names: tuple[str, ...]) -> bool:
    """Has the constructor an argument of one of these names?"""
    return any(p["name"] in names for p in described.get("build", ()))


def has_config(described: Description) -> bool:
    """Is it built with one object for all settings?"""
    named = any("fields" in p or p["name"] in CONFIG for p in described.get("build", ()))
    return named and not takes(described, (*WIDTH, *WIDTH_IN))


def shares_key_heads(described: Description, source: str, roles: Mapping[str, str] | None = None) -> bool:
    """Can it be built with fewer key heads than query heads? A configuration shows that by the names that are read."""
    roles = roles or {}
    return any(roles.get(one.key, one.role) == "num_kv_heads" for one in settings_of(described, source))


def settings_of(described: Description, source: str) -> list[Setting]:
    """The arguments of a constructor; in place of a configuration, its fields."""
    taken = [p for p in described.get("build", ()) if p["kind"] != "VAR_POSITIONAL"]
    return [one for p in taken for one in _settings(p, source, described["name"])]


def _settings(p: ArgumentFacts, source: str, name: str) -> Iterator[Setting]:
    if p["kind"] == "VAR_KEYWORD":  # **options are read as a configuration is
        reads = config_reads(own_text(source, name), p["name"])
        yield from (Setting((one,), required=False) for one in reads if one in ROLES)
        return
    own = {one.path: one for one in _own_fields(p)}
    is_used = p["name"] in CONFIG and re.search(
        rf"\b{p['name']} (or|is None|is not None)\b", source
    )  # where it is given
    is_number = p["name"] in ROLES or not (p["required"] or "fields" in p or is_used)
    reads = {} if is_number else config_reads(source, p["name"])
    if random := _random_role(reads):
        yield Setting((p["name"],), p["required"], random)
        return
    if not p.get("fields"):
        yield Setting((p["name"],), p["required"], "config" if reads else "", p["default"])
    else:
        yield from own.values()
    for read, is_required in reads.items():
        path = (p["name"], *read.split("."))
        is_inside = any(all(map(eq, path, one)) for one in own if len(one) > 1)  # one begins with the other
        if not is_inside and (is_required or path[-1] in ROLES):
            has_fields = bool(p.get("fields"))
            yield Setting(path, is_required and not has_fields, is_made=has_fields)


def _random_role(reads: Mapping[str, bool]) -> str:
    """The role of what is asked for random numbers; "" where it is something else. NumPy has an old way and a new."""
    if {"randn", "rand", "randint", "random_sample"} & {*reads}:
        return "RandomState"
    return "default_rng" if {"normal", "standard_normal", "uniform", "random", "integers"} & {*reads} else ""


def _own_fields(p: ArgumentFacts, path: tuple[str, ...] = ()) -> Iterator[Setting]:
    path = (*path, p["name"])
    if not p.get("fields"):
        yield Setting(path, p["required"], default=p["default"])
    for one in p.get("fields", ()):
        yield from _own_fields(one, path)


def choose_arguments(
    described: Description,
    sizes: ProbeSizes,
    dropout: float = 0.0,
    square: bool = False,
    own: Mapping[str, Any] | None = None,
    *,
    source: str = "",
    roles: Mapping[str, str] | None = None,
) -> Built:
    """The arguments with which a class is built at these sizes.

    Options:
        own: the learner's values, by name; they come first.
        source: the text of the file, which shows what is read of a configuration.
        roles: of arguments, by key, where they are not what their names say.
    """
    own, given, settings = own or {}, roles or {}, settings_of(described, source)
    chosen = {one.key: given.get(one.key) or one.likely_role for one in settings}
    values = role_values(fit_sizes(sizes, own, chosen), dropout, square, set(chosen.values()))
    arguments: dict[str, Any] = {}
    for one in settings:
        role = chosen[one.key]
        told = [own[name] for name in (one.key, one.path[-1]) if name in own]
        if told or role not in ("", KEEP):
            _place(arguments, one.path, told[0] if told else values.get(role, role[1:]))  # "=row" is a text
    _add_others(described, arguments, own, settings)
    asked = [one for one in settings if one.required and not {one.key, one.path[-1]} & {*own}]
    unknown = [one.path[-1] for one in asked if not chosen[one.key]]
    guessed = [one.path[-1] for one in asked if chosen[one.key] and not one.role and one.key not in given]
    return Built(arguments, tuple(unknown), tuple(guessed), _shown(arguments, sizes), chosen)


def _place(arguments: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Put a value into a configuration, or among the arguments."""
    for part in path[:-1]:
        arguments = arguments.setdefault(part, {})
    arguments[path[-1]] = value


def _add_others(
    described: Description, arguments: dict[str, Any], own: Mapping[str, Any], settings: Sequence[Setting]
) -> None:
    """Put in the learner's values for names that the constructor does not list: fields, or options of **kwargs."""
    others = {name: value for name, value in own.items() if not any(name in (s.key, s.path[-1]) for s in settings)}
    configs = [value for value in arguments.values() if isinstance(value, dict)]
    if any(p["kind"] == "VAR_KEYWORD" for p in described["build"]):
        arguments.update(others)
    elif configs:
        configs[0].update(others)
    elif others:
        listed = ", ".join(one.key for one in settings) or "none"
        raise ValueError(f"{described['name']} takes no argument {', '.join(others)}; it takes {listed}")


def _shown(chosen: Mapping[str, Any], sizes: ProbeSizes) -> dict[str, Any]:
    """The sizes among the arguments, to tell the learner."""
    if any(isinstance(value, dict) for value in chosen.values()):
        return {"d_model": sizes.width, "num_heads": sizes.num_heads}
    return {name: value for name, value in chosen.items() if type(value) is int}


def fit_sizes(sizes: ProbeSizes, own: Mapping[str, Any], roles: Mapping[str, str]) -> ProbeSizes:
    """The sizes as the learner's own values have them; heads and widths still divide.

    >>> fit_sizes(ProbeSizes(), {"num_heads": 4}, {"num_heads": "num_heads"}).width
    28
    """
    by_key = {**{key.rpartition(".")[2]: role for key, role in roles.items()}, **roles}
    told = {
        by_key.get(name) or ROLES.get(name): value for name, value in own.items() if type(value) is int and value > 0
    }
    if "context_length" in told:
        context = told["context_length"]
        sizes = replace(sizes, context_length=context, T=min(sizes.T, context))
    sizes = replace(sizes, d_in=told.get("d_in", sizes.d_in), head_dim=told.get("head_dim", sizes.head_dim))
    sizes = replace(
        sizes, num_heads=told.get("num_heads", sizes.num_heads), kv_heads=told.get("num_kv_heads", sizes.kv_heads)
    )
    if width := told.get("d_model") or told.get("d_out"):
        heads = [told["num_heads"]] if "num_heads" in told else [sizes.num_heads, 4, 3, 2, 1]
        _check_divides(told, width, {by_key.get(name) or ROLES.get(name): name for name in own})
        heads = [h for h in heads if width % h == 0] or [sizes.num_heads]
        sizes = replace(sizes, num_heads=heads[0], head_dim=max(1, width // heads[0]))
    return sizes


def _check_divides(told: Mapping[str | None, int], width: int, names: Mapping[str | None, str]) -> None:
    """Refuse a width and a number of heads of the learner's that do not fit."""
    heads = told.get("num_heads", 1)
    if width % heads and "head_dim" not in told:
        wide, below = names.get("d_model") or names["d_out"], width - width % heads
        fitting = " or ".join(str(one) for one in (below, below + heads) if one)
        raise ValueError(f"{wide} ({width}) must be divisible by {names['num_heads']} ({heads}); try {wide}={fitting}")


# Words in names that are not known, and the role that such a name is taken for: the first that fits.
_LIKE = (
    (r"drop|^p_|_p$", "dropout"),
    (r"bias", "bias"),
    (r"kv.*head|head.*kv|group", "num_kv_heads"),
    (r"(dim|size|width|d).*head|head.*(dim|size|width)|^d_?[kqv]$|_[kqv]_dim", "head_dim"),
    (r"head|^n_?h$|^h$|cabe[zc]a|k(o|oe)pf|tete|tou_?shu|atama|golov|glow|hlav|kafa|kepala", "num_heads"),
    (r"ctx|context|block|seq|len|pos|tokens|^t$|laenge|longi|longu|lunghe", "context_length"),
    (r"vocab", "vocab_size"),
    (r"layer|depth", "num_layers"),
    (r"ff|mlp|hidden_?mult|inner", "d_ff"),
    (r"^(d_?in|in_?d|n_?in)|input", "d_in"),
    (r"^(d_?out|out_?d|n_?out)|output", "d_out"),
    (r"emb|dim|width|hid|model|state|feat|chan|unit|size|^n_?x$|^d_|^[cde]$", "d_model"),
    (r"weidu|jigen|breite|razmer|rozmer|wymiar|boyut|ukuran", "d_model"),
)


def guess_role(name: str) -> str:
    """The role that an unknown name suggests; "" where nothing in it is known.

    >>> guess_role("n_state_vars"), guess_role("ctx_tokens"), guess_role("flavour")
    ('d_model', 'context_length', '')
    """
    return next((role for pattern, role in _LIKE if re.search(pattern, name.lower())), "")


def role_values(sizes: ProbeSizes, dropout: float, square: bool, roles: set[str]) -> dict[str, Any]:
    """A value for every role, for a class that has arguments of these roles.

    square: with d_in = d_out, as where nothing tells them apart.
    """
    square = square or "d_out" not in roles or not roles & {"d_in", "d_model"}
    d_in = sizes.width if square else sizes.d_in
    values = {
        "d_in": d_in,
        "d_out": sizes.width,
        "d_model": sizes.width if "d_in" in roles else d_in,
        "num_heads": sizes.num_heads,
        "num_kv_heads": sizes.kv_heads or sizes.num_heads,
        "head_dim": sizes.head_dim,
        "context_length": sizes.context_length,
        "dropout": dropout,
        "kept": 1 - dropout,
        "bias": False,
        "causal": True,
        "theta": 10000.0,
        "vocab_size": 19,  # of blocks and whole models, whose attention is checked
        "num_layers": 1,
        "d_ff": 23,
        "temperature": sizes.d_in**0.5,  # of a layer without weights, which is called with x
        "grid": list(sizes.grid),
        "device": "cpu",
        "head_dim + 2": sizes.head_dim + 2,
        "one": 1,
        "two": 2,
        "none": None,
        **{name: {"random": name} for name in ("RandomState", "default_rng")},
    }
    return {**values, "config": {name: values[role] for name, role in ROLES.items() if role != "config"}}


def known_values(sizes: ProbeSizes) -> dict[str, Any]:
    """A value for every known name."""
    values = role_values(sizes, 0.0, False, {"d_in", "d_out"})
    return {name: values[role] for name, role in ROLES.items()}
