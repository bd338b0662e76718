"""What files of this room share: texts as plain values, and checks of what a header says."""

from __future__ import annotations

from typing import Any

from regard.tokens import TextTokens


class Unfit(Exception):
    """Why a file is refused."""


def require(fits: bool, why: str) -> None:
    """Refuse the file unless it fits."""
    if not fits:
        raise Unfit(why)


def whole_number(value: Any, what: str) -> int:
    """A size, or the number of something.

    >>> whole_number(-1, "T")
    Traceback (most recent call last):
    regard.heads.file_checks.Unfit: T is -1, no size
    """
    require(isinstance(value, int) and not isinstance(value, bool) and value >= 0, f"{what} is {value!r}, no size")
    return int(value)


def plain_text(text: TextTokens) -> dict[str, Any]:
    """A text as JSON has it."""
    return {"pieces": text.pieces, "continues": text.continues, "padding": text.padding, "parts": text.parts}


def text_of_plain(text: dict[str, Any]) -> TextTokens:
    """A text from what plain_text() made of it.

    >>> text_of_plain(plain_text(TextTokens(["The", " cat"])))
    TextTokens(['The', ' cat'])
    """
    pieces, parts = text["pieces"], {int(i): name for i, name in text["parts"].items()}
    flags = [*text["continues"], *text["padding"]]
    plain = all(isinstance(one, str) for one in [*pieces, *parts.values()]) and all(
        one in (True, False) for one in flags
    )
    require(plain, "texts are not lists of tokens")
    return TextTokens(pieces, text["continues"], text["padding"], parts)
