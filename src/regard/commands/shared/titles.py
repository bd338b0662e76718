"""Titles: short names of texts and models that tell two of them apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath

from regard.support.tokens import printable_token

_TITLE = 32  # letters of a text that name it


def text_titles(names: Sequence[str | None], contents: Sequence[str]) -> list[str]:
    """Short names of texts: of a file its name, else its beginning; where that is the same, what differs.

    >>> text_titles([None, None], ["The cat sat", "Alice was beginning to get very tired"])
    ['“The cat sat”', '“Alice was beginning to get very…”']
    >>> text_titles([None, None], ["the cat " * 9 + "sat", "the cat " * 9 + "ran"])
    ['“… sat”', '“… ran”']
    """
    texts = [printable_token(" ".join(one.split())) for one in contents]
    shown = [_beginning(one) for one in texts]
    if len(set(shown)) < len(set(texts)):
        same = next(i for i in range(len(texts[0]) + 1) if len({one[: i + 1] for one in texts}) > 1)
        first = texts[0].rfind(" ", 0, same) + 1
        shown = [_beginning(f"… {one[first:]}") for one in texts]
    files = [
        printable_token(PurePath(name).name) if name is not None and os.path.isfile(name) else None for name in names
    ]
    titles = [f"“{text}”" if file is None else file for file, text in zip(files, shown, strict=True)]
    return titles if len(set(titles)) == len(titles) else [f"“{text}”" for text in shown]


def _beginning(text: str) -> str:
    """As many words as make a title."""
    if len(text) <= _TITLE:
        return text
    words, cut = text[:_TITLE].rpartition(" ")[0], text[: _TITLE - 1]
    return f"{words if len(words) > _TITLE // 2 else cut}…"


def model_titles(names: Sequence[str]) -> list[str]:
    """Short names of two models: the last part of their paths, where these differ.

    >>> model_titles(["runs/first/step-100", "runs/first/step-200"]), model_titles(["a/model", "b/model"])
    (['step-100', 'step-200'], ['a/model', 'b/model'])
    """
    last = [PurePath(name).name or name for name in names]
    return last if len(set(last)) == len(last) > 1 else list(names)
