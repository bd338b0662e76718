"""JSON from files that nobody vouches for: its cost is estimated before it is parsed.

A short text can become large objects, because every list takes 64 bytes and more. So brackets, colons and commas are
counted first. Names that are there twice and numbers of many digits are refused.
"""

from __future__ import annotations

import json
from typing import Any

from regard.support.printable import readable

MOST = 500_000  # what a text may cost: 1 for a comma, 2 for a colon, 5 for a bracket; each is about 70 bytes of memory
DIGITS = 19  # of 2⁶³


def parse_json(raw: bytes | str, most: int = MOST, digits: int = DIGITS) -> Any:
    """The value of a JSON text; a ValueError says what is wrong with it.

    >>> parse_json('{"n_layer": 12}')
    {'n_layer': 12}
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: a is there twice

    most: what the text may cost. digits: those of the largest whole number.
    """

    def integer(text: str) -> int:
        if len(text) > digits:  # Python takes long to parse a million digits
            raise ValueError(f"no size has {len(text):,} digits")
        return int(text)

    text = raw if isinstance(raw, str) else raw.decode()
    cost = text.count(",") + 2 * text.count(":") + 5 * (text.count("[") + text.count("{"))
    if cost > most:
        raise ValueError(f"it has too many values (commas, colons and brackets cost {cost:,}, and {most:,} is allowed)")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{readable(name)} is there twice")
        values[name] = value
    return values
