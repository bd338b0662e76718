"""Which argument of forward says what is padding, and how it can be passed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.school.check.behaviours.cross_attention import find_context
from regard.school.check.behaviours.probing import call_arguments
from regard.school.check.compare.call_forms import MASK
from regard.school.check.compare.experiment import Experiment
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import mask_shows, names_a_mask_of_tokens, with_header
from regard.support import vocabulary as words

_NO_MASK = (*words.CACHES, *words.CACHES_TOO, *words.KEY_SOURCES, *words.STARTS, *words.KEYS_AND_VALUES)
_OTHER = r"pos|id(s|x)?$|seg|type|time|step|doc|label|weight|bias|scor|freq|cos|sin|rot|cache|past|state|drop|head"
_OTHER_TEXT = rf"{words.CONTEXT_ARGUMENT}|{words.CONTEXT_ARGUMENT_TOO}"


@dataclass(frozen=True)
class PaddingArgument:
    """An argument that takes a mask of tokens or lengths; required ones have a position."""

    name: str
    position: int | None = None
    is_certain: bool = False  # do its name or the text of the code say that it is for padding?
    is_mask: bool = True  # does its name speak of a mask, at least?
    of_context: bool = False  # does its name say that it is the padding of the context?

    def given(self, value: Tensor) -> tuple[dict[str, Any], dict[int, Any]]:
        """More arguments of a call, by name and by position."""
        return ({self.name: value}, {}) if self.position is None else ({}, {self.position: value})

    def forms(self, keep: Tensor) -> Iterator[tuple[str, Tensor]]:
        """What it may be given to say which tokens (B, S) are real, by name."""
        is_length = re.search(words.LENGTHS_ARGUMENT, self.name.lower()) is not None
        if is_length or not self.is_mask:
            yield "lengths", keep.sum(-1)
        if not is_length:
            yield from masks(keep)


def documentation(result: Experiment) -> str:
    """What the learner wrote of this class, with the comments at the top of the file."""
    return with_header(result.subject.source, result.text)


def find_padding(result: Experiment) -> list[PaddingArgument]:
    """The arguments for padding, of x and of the context; one that may be, where none says so."""
    text, of_context = documentation(result), _of_context(result)
    free = {name: position for name, position in _free(result) if of_context.get(name, True)}
    certain = [name for name in free if of_context.get(name) or re.search(words.PADDING_ARGUMENT, name.lower())]
    named = [name for name in free if re.search(words.PADDING_OF_CONTEXT, name.lower())]
    masks = [name for name in free if ("mask" in name.lower() or name in MASK) and name not in named]
    says = [name for name in masks if names_a_mask_of_tokens(text, name) and name not in certain]
    if certain or says:
        return [PaddingArgument(n, free[n], is_certain=True, of_context=n in of_context) for n in (*certain, *says)]
    if masks:
        return [PaddingArgument(masks[0], free[masks[0]])] if result.masked is None else []
    return _unnamed(text, free)


def _of_context(result: Experiment) -> dict[str, bool]:
    """The arguments that are the padding of a context by their names, and whether they can be tried as that."""
    context, text = None if is_function(result.subject) else find_context(result), documentation(result)
    names = [name for name in call_arguments(result) if re.search(words.PADDING_OF_CONTEXT, name.lower())]
    if context is None:
        return {}
    if context.is_required:
        return dict.fromkeys(names, True)
    # There may be several texts beside x; and of a causal layer it is not known what it hides of a context.
    return {name: not result.case.causal and names_a_mask_of_tokens(text, name) for name in names}


def _unnamed(text: str, free: Mapping[str, int | None]) -> list[PaddingArgument]:
    """The first argument that may be for padding, where none is called a mask; rather one that the text explains."""
    others = [name for name in free if _may_be_a_mask(name)]
    said = [n for n in others if names_a_mask_of_tokens(text, n) and mask_shows(text, n) is not None]
    return [PaddingArgument(n, free[n], is_certain=bool(said), is_mask=bool(said)) for n in (said or others)[:1]]


def _free(result: Experiment) -> Iterator[tuple[str, int | None]]:
    """Arguments that are not given, or so that they hide nothing; the positions of those that are required."""
    names = call_arguments(result)
    for position, one in enumerate(result.call.args):
        if position and position < len(names) and _hides_nothing(one):
            yield names[position], position
    facts = {p["name"]: p for p in result.subject.described["call"]}
    for name in names[len(result.call.args) :]:
        is_open = facts[name]["default"] is None or "mask" in name
        if _hides_nothing(result.call.kwargs[name]) if name in result.call.kwargs else is_open:
            yield name, None


def _hides_nothing(one: Any) -> bool:
    return one == {"value": None} or (isinstance(one, str) and one.startswith(("lengths", "shows: ")))


def _may_be_a_mask(name: str) -> bool:
    """Says its name nothing else?"""
    lower = name.lower()
    return not (lower in _NO_MASK or re.search(_OTHER, lower) or re.fullmatch(_OTHER_TEXT, lower))


def masks(keep: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The mask in every form that layers take, by name."""
    added = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -1e9)
    written = {
        "True = real": keep,
        "1 = real": keep.to(torch.float64),
        "True = padding": ~keep,
        "1 = padding": (~keep).to(torch.float64),
        "added to the scores": added,
    }
    for name, mask in written.items():
        yield name, mask
        yield f"{name}, (B, 1, S)", mask[:, None]
        yield f"{name}, (B, 1, 1, S)", mask[:, None, None]
