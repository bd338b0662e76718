"""Constructor arguments: what a learner's class is built with, by the names that people give to sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.school.check.learner_code.protocol import Description
from regard.support import vocabulary as words
from regard.support.vocabulary import BIAS, HEAD_DIM, WIDTH_IN, WIDTH_OUT


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


# The first that a class can be built with is used; the others are for layers that insist on even sizes.
PROBES = (ProbeSizes(), ProbeSizes(d_in=24, num_heads=4, head_dim=8))
GROUPED = ProbeSizes(num_heads=6, head_dim=7, kv_heads=3)
# A finding counts if it is also made at other sizes.
OTHERS = (
    ProbeSizes(d_in=17, num_heads=5, head_dim=3, context_length=13, B=3, T=7),
    ProbeSizes(d_in=20, num_heads=2, head_dim=6, context_length=13, B=3, T=7),
)
OTHER_GROUPED = ProbeSizes(d_in=17, num_heads=4, head_dim=5, context_length=13, B=3, T=7, kv_heads=2)

# Among the arguments of a layer, the names that may be something else elsewhere are known too.
WIDTH = (*words.WIDTH, *words.WIDTH_TOO)
HEADS = (*words.HEADS, *words.HEADS_TOO)
KV_HEADS = (*words.KV_HEADS, *words.KV_HEADS_TOO)
CONTEXT = (*words.CONTEXT, *words.CONTEXT_TOO)
DROPOUT = (*words.DROPOUT, *words.DROPOUT_TOO)
CAUSAL = (*words.CAUSAL, *words.CAUSAL_TOO)
CONFIG = ("config", "cfg", "args", "params", "conf", "hparams", "c", "opt", "settings")


@dataclass(frozen=True)
class Built:
    """Arguments for a constructor, and the names that are not known."""

    arguments: dict[str, Any] | None = None  # None for what is built already
    unknown: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()  # names that are not known, but hold a word that is
    sizes: dict[str, Any] = field(default_factory=dict)  # those of them that are sizes, to tell the learner


def takes(described: Description, names: tuple[str, ...]) -> bool:
    """Has the constructor an argument of one of these names?"""
    return any(p["name"] in names for p in described.get("build", ()))


def has_config(described: Description) -> bool:
    """Is it built with one object for all settings?"""
    return takes(described, CONFIG) and not takes(described, (*WIDTH, *WIDTH_IN))


def shares_key_heads(described: Description, source: str) -> bool:
    """Can it be built with fewer key heads than query heads? A configuration shows that by the names that are read."""
    if takes(described, KV_HEADS):
        return True
    return has_config(described) and any(re.search(rf"[.\"']{name}\b", source) for name in KV_HEADS)


def choose_arguments(
    described: Description,
    sizes: ProbeSizes,
    dropout: float = 0.0,
    square: bool = False,
    own: Mapping[str, Any] | None = None,
) -> Built:
    """The arguments with which a class is built at these sizes; `own` are the learner's, by name, and come first."""
    own = own or {}
    parameters = [p for p in described["build"] if p["kind"] not in ("VAR_POSITIONAL", "VAR_KEYWORD")]
    names = [p["name"] for p in parameters]
    square = square or not takes(described, WIDTH_OUT) or not takes(described, (*WIDTH_IN, *WIDTH))
    known = known_values(sizes, dropout, square, both=takes(described, WIDTH_IN))
    if has_config(described):
        known |= {name: {**known, **own} for name in CONFIG}
    elif wrong := [name for name in own if name not in names]:
        listed = ", ".join(names) or "none"
        raise ValueError(f"{described['name']} takes no argument {', '.join(wrong)}; it takes {listed}")
    chosen: dict[str, Any] = {}
    unknown, guessed = [], []
    for name, is_required in ((p["name"], p["required"]) for p in parameters):
        if name in own:
            chosen[name] = own[name]
        elif name in known and (is_required or name not in (*BIAS, *CAUSAL)):
            chosen[name] = known[name]
        elif is_required and (like := _like(name, names)):
            chosen[name] = known[like]
            guessed.append(name)
        elif is_required:
            unknown.append(name)
    return Built(chosen, tuple(unknown), tuple(guessed), _shown(chosen, sizes))


def _shown(chosen: Mapping[str, Any], sizes: ProbeSizes) -> dict[str, Any]:
    """The sizes among the arguments, to tell the learner."""
    if any(isinstance(value, dict) for value in chosen.values()):
        return {"d_model": sizes.width, "num_heads": sizes.num_heads}
    return {name: value for name, value in chosen.items() if type(value) is int}


# Words in names that are not known, and the known name that such a name is taken for: the first that fits.
_LIKE = (
    (r"drop|^p_|_p$", "dropout"),
    (r"bias", "bias"),
    (r"kv.*head|head.*kv|group", "num_kv_heads"),
    (r"(dim|size|width|d).*head|head.*(dim|size|width)|^d_?[kqv]$|_[kqv]_dim", "head_dim"),
    (r"head|^n_?h$|^h$", "num_heads"),
    (r"ctx|context|block|seq|len|pos|tokens|^t$", "context_length"),
    (r"vocab", "vocab_size"),
    (r"layer|depth", "num_layers"),
    (r"ff|mlp|hidden_?mult|inner", "d_ff"),
    (r"^(d_?in|in_?d|n_?in)|input", "d_in"),
    (r"^(d_?out|out_?d|n_?out)|output", "d_out"),
    (r"emb|dim|width|hid|model|state|feat|chan|unit|size|^n_?x$|^d_|^[cde]$", "d_model"),
)


def _like(name: str, others: Sequence[str]) -> str:
    """The known name that an unknown one is taken for; "" where nothing in it is known.

    >>> _like("n_state", []), _like("ctx", []), _like("flavour", [])
    ('d_model', 'context_length', '')
    """
    like = next((known for pattern, known in _LIKE if re.search(pattern, name.lower())), "")
    return "d_model" if like == "d_in" and not any(other in WIDTH_OUT for other in others) else like


def known_values(sizes: ProbeSizes, dropout: float = 0.0, square: bool = False, both: bool = True) -> dict[str, Any]:
    """A value for every known name; `both`: the class has an input width of its own, so d_model is not that."""
    d_in = sizes.width if square else sizes.d_in
    return {
        **dict.fromkeys(WIDTH_IN, d_in),
        **dict.fromkeys(WIDTH_OUT, sizes.width),
        **dict.fromkeys(WIDTH, sizes.width if both or square else d_in),
        **dict.fromkeys(HEADS, sizes.num_heads),
        **dict.fromkeys(KV_HEADS, sizes.kv_heads or sizes.num_heads),
        **dict.fromkeys(HEAD_DIM, sizes.head_dim),
        **dict.fromkeys(CONTEXT, sizes.context_length),
        **dict.fromkeys(DROPOUT, dropout),
        **dict.fromkeys(BIAS, False),
        **dict.fromkeys(CAUSAL, True),
        **dict.fromkeys(words.VOCABULARY, 19),  # of blocks and whole models, whose attention is checked
        **dict.fromkeys(words.LAYERS, 1),
        **dict.fromkeys(words.INNER_WIDTH, 23),
        "device": "cpu",
        "dtype": None,
    }
