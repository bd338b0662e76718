"""Building: the arguments of a learner's constructor, by the names that people use for the sizes of attention."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
# Of blocks and whole models, whose attention is checked.
MODEL = {
    **dict.fromkeys(words.VOCABULARY, 19),
    **dict.fromkeys(words.LAYERS, 1),
    **dict.fromkeys(words.INNER_WIDTH, 23),
}
CONFIG = ("config", "cfg", "args", "params", "conf", "hparams", "c", "opt", "settings")


@dataclass(frozen=True)
class Built:
    """Arguments for a constructor, and the names that are not known."""

    arguments: dict[str, Any]
    unknown: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()  # names that are not known, but hold a word that is
    sizes: dict[str, Any] = field(default_factory=dict)  # those of them that are sizes, to tell the learner


def takes(described: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    """Has the constructor an argument of one of these names?"""
    return any(p["name"] in names for p in described.get("build", ()))


def has_config(described: Mapping[str, Any]) -> bool:
    """Is it built with one object for all settings?"""
    return takes(described, CONFIG) and not takes(described, (*WIDTH, *WIDTH_IN))


def shares_key_heads(described: Mapping[str, Any], source: str) -> bool:
    """Can it be built with fewer key heads than query heads? A configuration shows that by the names that are read."""
    if takes(described, KV_HEADS):
        return True
    return has_config(described) and any(re.search(rf"[.\"']{name}\b", source) for name in KV_HEADS)


def choose_arguments(
    described: Mapping[str, Any],
    sizes: ProbeSizes,
    dropout: float = 0.0,
    square: bool = False,
    own: Mapping[str, Any] | None = None,
) -> Built:
    """The arguments with which a class is built at these sizes; `own` are the learner's, by name, and come first."""
    own = own or {}
    parameters = [p for p in described["build"] if p["kind"] not in ("VAR_POSITIONAL", "VAR_KEYWORD")]
    square = square or not takes(described, WIDTH_OUT) or not takes(described, (*WIDTH_IN, *WIDTH))
    known = _values(sizes, dropout, square, both=takes(described, WIDTH_IN))
    chosen: dict[str, Any] = {}
    unknown = []
    guessed = []
    for p in parameters:
        name = p["name"]
        if name in own:
            chosen[name] = own[name]
        elif name in CONFIG and has_config(described):
            chosen[name] = {**known, **own}
        elif name in known and not (name in (*BIAS, *CAUSAL) and not p["required"]):
            chosen[name] = known[name]
        elif p["required"] and (like := _like(name, parameters)):
            chosen[name] = known[like]
            guessed.append(name)
        elif p["required"]:
            unknown.append(name)
    if wrong := [name for name in own if name not in [p["name"] for p in parameters] and not has_config(described)]:
        raise ValueError(
            f"{described['name']} takes no argument {', '.join(wrong)}; "
            f"it takes {', '.join(p['name'] for p in parameters) or 'none'}"
        )
    shown = {name: value for name, value in chosen.items() if type(value) is int}
    if any(isinstance(value, dict) for value in chosen.values()):
        shown = {"d_model": sizes.width, "num_heads": sizes.num_heads}
    return Built(chosen, tuple(unknown), tuple(guessed), shown)


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


def _like(name: str, parameters: Sequence[Mapping[str, Any]]) -> str:
    """The known name that an unknown one is taken for; "" where nothing in it is known.

    >>> _like("n_state", []), _like("ctx", []), _like("flavour", [])
    ('d_model', 'context_length', '')
    """
    like = next((known for pattern, known in _LIKE if re.search(pattern, name.lower())), "")
    others = [p["name"] for p in parameters]
    return "d_model" if like == "d_in" and not any(other in WIDTH_OUT for other in others) else like


def _values(sizes: ProbeSizes, dropout: float, square: bool, both: bool) -> dict[str, Any]:
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
        **MODEL,
        "device": "cpu",
        "dtype": None,
    }
