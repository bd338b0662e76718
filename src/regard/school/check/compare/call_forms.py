"""Call forms: what a learner's forward takes, which tensor is its output, and whether it must hide the future."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.school.check.compare.constructor_arguments import CONTEXT, ProbeSizes, takes
from regard.school.check.learner_code.construction import tensor_names
from regard.school.check.learner_code.protocol import ArgumentFacts, CallJob, Description, ModuleContents
from regard.school.check.learner_code.subject import Subject
from regard.school.check.learner_code.text_hints import (
    attention_roles,
    mask_shows,
    names_positions,
    own_text,
    says_no_future,
)
from regard.school.check.request import Request
from regard.support import vocabulary as words

MASK = (*words.MASK, *words.MASK_TOO)


class _Layout(NamedTuple):
    """How x (B, T, E) is laid out, and an output of so many texts and tokens back to (B, T, width)."""

    lay: Callable[[Tensor], Tensor]
    axes: str  # of the output; C: its width, 1: an axis of one, H and W: rows and columns of tokens
    back: Callable[[Tensor], Tensor]


def _grid(t: Tensor) -> tuple[int, int]:
    return ProbeSizes(T=t.shape[1]).grid


_LAYOUTS = {
    "batch first": _Layout(lambda x: x, "BTC", lambda t: t),
    "tokens first": _Layout(lambda x: x.transpose(0, 1), "TBC", lambda t: t.transpose(0, 1)),
    "one text": _Layout(lambda x: x[0], "TC", lambda t: t[None]),
    "channels first": _Layout(lambda x: x.mT, "BCT", lambda t: t.mT),
    "image, channels first": _Layout(lambda x: x.mT.unflatten(2, _grid(x)), "BCHW", lambda t: t.flatten(2).mT),
    "image, channels last": _Layout(lambda x: x.unflatten(1, _grid(x)), "BHWC", lambda t: t.flatten(1, 2)),
    "rows of an image": _Layout(lambda x: x[None], "1BTC", lambda t: t[0]),
    "columns of an image": _Layout(lambda x: x.transpose(0, 1)[None], "1TBC", lambda t: t[0].transpose(0, 1)),
    "rows, channels first": _Layout(lambda x: x.permute(2, 0, 1)[None], "1CBT", lambda t: t[0].permute(1, 2, 0)),
    "columns, channels first": _Layout(lambda x: x.permute(2, 1, 0)[None], "1CTB", lambda t: t[0].permute(2, 1, 0)),
    "heads apart": _Layout(lambda x: x[:, None], "B1TC", lambda t: t.transpose(1, 2).flatten(2)),
    "heads behind": _Layout(lambda x: x[:, :, None], "BT1C", lambda t: t.flatten(2)),
}
LAYOUTS = tuple(_LAYOUTS)[:3]  # that are always tried
MORE_LAYOUTS = tuple(_LAYOUTS)[3:-1]
HEADS_APART = tuple(_LAYOUTS)[-2:]  # (B, H, T, D) and (B, T, H, D), for functions of q, k, v
# Values for arguments that forward requires, by what their names say: the first that runs is taken.
_ANYTHING = ("x", {"value": None}, "shows: True", "shows: True, (B, T)", "lengths", {"value": 0})
MOST_CHOICES = 40
_SOURCES = (*words.KEY_SOURCES, "memory", "encoder_output", "encoder_states", "enc", "source", "src", "ctx", "kv_input")
_SHOWS = ("shows: True", "shows: 0", "shows: False", "shows: 1")
_CALL_ROLES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"is_causal|causal", ({"value": True},)),
    (r"use_cache|(return|output|need)_?\w*|training|\w*debug", ({"value": False},)),
    (r"(kv_?)?cache\w*|\w*past\w*|prev_\w*|state", ({"value": None},)),
    (r"\w*len(s|gths?)?|\w*laengen?", ({"value": None}, "lengths")),
    (r"(start|offset|step|layer)\w*|\w*(offset|_idx|_pos)", ({"value": 0}, "positions")),
    (r"freqs?_?c\w*|freqs?|rope\w*", ("freqs_cis", "freqs_cis, (1, T, 1, D/2)", ["cos", "sin"])),
    (r"cos\w*", ("cos", "cos, (B, T, D)", "cos, half")),
    (r"sin\w*", ("sin", "sin, (B, T, D)", "sin, half")),
    (r"position_embeddings", (["cos, (B, T, D)", "sin, (B, T, D)"], ["cos", "sin"])),
    (r"pos\w*|\w*positions?|\w*position_ids", ("positions", "positions, (B, T)", {"value": None}, "zeros")),
    (r"\w*(segment|doc|type)\w*", ("ids", {"value": None})),
    (
        r"\w*(mask|pad|valid|adj|missing|ignor|bias|edge|masc|masq|maske|hidden_keys)\w*",
        (
            {"value": None},
            *(f"{one}{form}" for form in ("", ", (B, T)", ", (B, 1, 1, T)", ", (B, T, T)") for one in _SHOWS),
        ),
    ),
    (r"[hH]|height|rows|n_rows|[hH]eight", ("rows",)),
    (r"[wW]|width|cols|columns|[wW]idth", ("columns",)),
    (r"hw|shape|grid\w*|size|x_size|resolution", (["rows", "columns"],)),
)


@dataclass(frozen=True)
class CallForm:
    """Names of tensors for a call, how x is laid out, and how the mask among them is written."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    layout: str = LAYOUTS[0]
    mask: str = ""  # the form of the mask; "" where none is passed
    returns: str = ""  # the layout of its output, where that is another

    @property
    def names(self) -> list[str]:
        """The names of its tensors."""
        return tensor_names(self.as_json())

    @property
    def texts(self) -> int:
        """How often it is given x."""
        return [name.partition(",")[0] for name in self.names].count("x")

    def as_json(self) -> CallJob:
        """As the driver reads it."""
        return {"args": list(self.args), "kwargs": dict(self.kwargs)}

    def outputs(self, tensors: Sequence[Tensor], B: int, T: int) -> list[Tensor]:
        """The tensors of a result that may be the output, as (B, T, width): the first of each shape."""
        layout = self.returns or self.layout
        first = {t.shape: t for t in reversed(tensors) if t.is_floating_point()}
        rows, columns = ProbeSizes(T=T).grid
        sizes = {"B": B, "T": T, "H": rows, "W": columns, "1": None if layout in HEADS_APART else 1}
        known = [(axis, sizes[name]) for axis, name in enumerate(_LAYOUTS[layout].axes) if sizes.get(name)]

        def fits(t: Tensor) -> bool:
            return t.dim() == len(_LAYOUTS[layout].axes) and all(t.shape[axis] == size for axis, size in known)

        return [_LAYOUTS[layout].back(t) for t in tensors if first.get(t.shape) is t and fits(t)]


def inputs(x: Tensor) -> dict[str, Tensor]:
    """x in each layout, by the name that calls use."""
    others = {f"x, {name}": one.lay(x).contiguous() for name, one in _LAYOUTS.items() if name != LAYOUTS[0]}
    return {"x": x, **others}


def other_inputs(x: Tensor, head_dim: int) -> dict[str, Tensor]:
    """What forward may require beside x, so that it changes nothing: masks that show everything, no rotation."""
    (B, T, _), D = x.shape, head_dim
    ones = torch.ones(T, T, dtype=torch.bool)
    shows = {
        "shows: True": ones,
        "shows: 0": torch.zeros(T, T).double(),
        "shows: False": ~ones,
        "shows: 1": ones.double(),
    }
    forms = {", (B, T)": (B, T), ", (B, 1, 1, T)": (B, 1, 1, T), ", (B, T, T)": (B, T, T)}
    masks = {
        f"{name}{form}": t[0, 0].expand(shape).clone() for name, t in shows.items() for form, shape in forms.items()
    }
    cos, sin, half = torch.ones(T, D).double(), torch.zeros(T, D).double(), D // 2
    turns = torch.ones(T, half, dtype=torch.complex128)
    return {
        **shows,
        **masks,
        **{name: torch.tensor(size) for name, size in zip(("rows", "columns"), ProbeSizes(T=T).grid, strict=True)},
        "zeros": torch.zeros_like(x),
        "lengths": torch.full((B,), T),
        "positions": torch.arange(T),
        "positions, (B, T)": torch.arange(T).repeat(B, 1),
        "ids": torch.zeros(B, T, dtype=torch.long),
        "freqs_cis": turns,
        "freqs_cis, (1, T, 1, D/2)": turns[None, :, None],
        "cos": cos,
        "sin": sin,
        **{f"{name}, (B, T, D)": t.repeat(B, 1, 1) for name, t in (("cos", cos), ("sin", sin))},
        **{f"{name}, half": t[:, :half].clone() for name, t in (("cos", cos), ("sin", sin))},
    }


def mask_forms(visible: Tensor, dtype: torch.dtype, B: int) -> dict[str, Tensor]:
    """A mask (T, T) in each form that layers take, by name."""
    added = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, -torch.inf)
    written = {
        "True = may attend": visible,
        "True = hidden": ~visible,
        "added to the scores": added,
        "1 = may attend": visible.to(dtype),
        "1 = hidden": (~visible).to(dtype),
    }
    in_heads = {f"{name}, (1, 1, T, T)": mask[None, None] for name, mask in written.items()}
    in_texts = {f"{name}, (B, T, T)": mask.expand(B, -1, -1).clone() for name, mask in written.items()}
    return {**written, **in_heads, **in_texts}


def mask_argument(described: Description) -> str | None:
    """The name of forward's argument for a mask."""
    names = [p["name"] for p in described["call"]]
    roles = attention_roles(names, "") or {}  # of a function, M may be a memory
    return next((name for name in names if name.lower() in MASK and name not in roles), None)


def mask_of(subject: Subject) -> str | None:
    """The same; of a function, also an argument that its text calls a mask, or of which it says what True hides."""
    described = subject.described
    named = mask_argument(described)
    if named is not None or "build" in described:
        return named
    text = own_text(subject.source, described["name"])
    free = [p["name"] for p in positional(described["call"])[1:] if p["required"] or p["default"] is None]
    return next((name for name in free if _is_called_a_mask(name, text)), None)


def _is_called_a_mask(name: str, text: str) -> bool:
    called = (
        rf"(?i)\b{re.escape(name)}\b`*( \([^)]*\))?\s*[:=-]?\s*((an?|the|optional|float|bool|boolean|additive) )*mask\b"
    )
    is_seen = re.fullmatch(r"(?i)valid|visible|allowed|keep|permitted|can_see|may_attend", name)
    docstrings = "".join(text.split('"""')[1::2])
    return re.search(called, docstrings) is not None or (is_seen is not None and mask_shows(text, name) is not None)


def positional(arguments: Sequence[ArgumentFacts]) -> list[ArgumentFacts]:
    """Arguments that may be given by position."""
    return [p for p in arguments if p["kind"] in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]


def call_forms(
    described: Description, masks: Sequence[str], layouts: Sequence[str], values: Mapping[str, Any] | None = None
) -> Iterator[CallForm]:
    """Ways to call it with x in these layouts: without a mask, or with each of these forms of it.

    values: for some of the arguments that it requires, by name.
    """
    mask, required = mask_argument(described), _required(positional(described["call"]), bool(masks))
    known: dict[str, Any] = {name: (options_of(name) or ("x",))[0] for name in required[1:]} | dict(values or {})
    for layout, form in product(layouts, masks or ("",)):
        hides = {mask: form} if mask is not None and form else {}
        given, kwargs = known | hides, {} if mask in required else hides
        others = {name: _laid(value, layout) for name, value in known.items() if name not in required}
        args = tuple(_laid(given.get(name, "x"), layout) for name in required)
        yield CallForm(args, {**others, **kwargs, **_keywords(described)}, layout, form)


def _laid(value: Any, layout: str) -> Any:
    return f"x, {layout}" if value == "x" and layout != LAYOUTS[0] else value


def _keywords(described: Description) -> dict[str, Any]:
    """Values for arguments that can only be given by name, and must be."""
    names = [p["name"] for p in described["call"] if p["kind"] == "KEYWORD_ONLY" and p["required"]]
    return {name: (options_of(name) or ({"value": None},))[0] for name in names}


def options_of(name: str) -> tuple[Any, ...]:
    """Values to try for a required argument of this name; () where it says nothing."""
    return next((values for pattern, values in _CALL_ROLES if re.fullmatch(pattern, name)), ())


def choices_of_values(described: Description) -> Iterator[dict[str, Any]]:
    """Values for the arguments that forward requires beside the first, the likeliest first."""
    required = _required(positional(described["call"]), False)[1:]
    sources = [p["name"] for p in positional(described["call"]) if p["name"] in _SOURCES and not p["required"]]
    options = [options_of(name) or _ANYTHING for name in required]
    options = [one[: 24 if len(required) < 3 else 4] for one in options][:5]
    ranked = sorted(product(*(range(len(one)) for one in options)), key=lambda ranks: (sum(ranks), ranks))
    for ranks in ranked[:MOST_CHOICES]:
        yield {name: one[rank] for name, one, rank in zip(required, options, ranks, strict=False)}
    if sources:
        yield dict.fromkeys((*required, *sources), "x")


def _required(parameters: Sequence[ArgumentFacts], masked: bool) -> list[str]:
    """The arguments that are passed: those without a default; or the first, or x where nothing is known of them."""
    names = [p["name"] for p in parameters]
    required = [p["name"] for p in parameters if p["required"]] or names[:1] or ["x"]
    if not masked and required[0].lower() in ("q", "query", "queries"):
        others = ("k", "v", "key", "value", "keys", "values")  # with a default: cross-attention, if given
        required += [name for name in names[len(required) :] if name.lower() in others]
    return required


def expects_causal(subject: Subject, contents: ModuleContents, request: Request) -> bool | None:
    """Should it hide the future? None where nothing says so: then both are right."""
    if request.causal is not None:
        return request.causal
    described, attributes = subject.described, contents.get("attributes", {})
    name = described["name"].lower()
    flags = [value for flag, value in attributes.items() if flag in ("causal", "is_causal")]
    if flags and (not subject.source or "causal" in subject.source):  # a configuration of ours has every field
        return bool(flags[0])
    if any(word in name for word in ("bidirectional", "encoder", "cross", "unmasked", "vit", "bert")):
        return None
    if _is_said_causal(subject):
        return True
    kept = (*contents.get("buffers", ()), *contents.get("loose", ()), *contents.get("parameters", ()))
    if any(one["is_mask"] for one in kept):
        return True
    is_told = takes(described, CONTEXT) if not subject.is_built else any(n in attributes for n in CONTEXT[:4])
    has_table = names_positions(own_text(subject.source, described["name"])) is not None  # a length is for that, too
    return True if is_told and mask_argument(described) is None and not has_table else None


def _is_said_causal(subject: Subject) -> bool:
    """Does its name, or what its text says of the future, say that it hides it?"""
    described = subject.described
    return _is_named_causal(described) or says_no_future(own_text(subject.source, described["name"])) is not None


def _is_named_causal(described: Description) -> bool:
    """Does the name of a class say that it hides the future? "masked" may speak of a mask that is passed."""
    name = described["name"].lower()
    takes_mask = mask_argument(described) or any(re.search("pad|len|valid", p["name"]) for p in described["call"])
    return any(word in name for word in ("causal", "decoder", "gpt", *(() if takes_mask else ("masked",))))


def causal_mask(T: int) -> Tensor:
    """(T, T), True = may attend."""
    return torch.ones(T, T, dtype=torch.bool).tril()


def random_tensor(seed: int, *shape: int) -> Tensor:
    """Numbers in float64, the same for the same seed."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
