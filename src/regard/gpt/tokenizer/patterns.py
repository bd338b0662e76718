r"""Patterns in a tokenizer.json: texts, or regular expressions of Oniguruma, which a backtracking search can hang in.

Python's `re` is asked what it can tell: its syntax is near enough to Oniguruma's if \p{…} and \x{…} are \w.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Iterable
from typing import Any

LONGEST = 10_000  # characters of a setting
_LONGEST_PATTERN = 2000
_MOST_REPEATS = 1000  # of all counted repeats of a pattern together, as if they were nested
_REPEAT = re.compile(r"(?<!\\x)\{(\d{1,6})?(?:,(\d{1,6}))?\}")
_CLASS = re.compile(r"\\.|\[\^?\]?((?:\\.|[^\]\\])*)\]", re.DOTALL)
_TRIED = (
    "the cat sat on the mat, and 1234567 of THEM sang loudly: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa naïve 猫 🐈\n\n  end "
)
_LONGEST_RUN, _OWN_LETTERS = 32, 16  # of a letter that a pattern names; letters of one pattern
_MOST_SECONDS = 0.25  # of the processor, for all patterns of a file; those of known models need a hundredth


def is_pattern(value: Any) -> bool:
    """A text, or a regular expression whose repeats take no long time."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    [(kind, text)] = value.items()
    if kind != "Regex":
        return kind == "String" and isinstance(text, str) and len(text) <= LONGEST
    if not isinstance(text, str) or len(text) > _LONGEST_PATTERN:
        return False
    return math.prod(int(max(pair, key=len) or 1) for pair in _REPEAT.findall(text)) <= _MOST_REPEATS


def is_replaced_pattern(value: Any) -> bool:
    """A pattern that never matches an empty text: with the others every place of a text is replaced, or Rust panics."""
    return is_pattern(value) and least_width(value) > 0


def least_width(pattern: dict[str, str]) -> int:
    r"""The fewest characters that a pattern matches; 0 also where that is unknown.

    >>> [least_width({"Regex": pattern}) for pattern in (" {2,}", r"\p{L}+s", "(?=e)", "a|", "[[:space:]]*")]
    [2, 2, 0, 0, 0]
    """
    if "String" in pattern:
        return len(pattern["String"])
    text = re.sub(r"\\[pPx]\{[^}]*\}", r"\\w", pattern["Regex"])
    # Classes inside classes mean something else in Python.
    if any("[" in re.sub(r"\\.", "", inside) or "&&" in inside for inside in _CLASS.findall(text)):
        return 0
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:  # Python 3.10
        import sre_parse as _parser
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(_parser.parse(text).getwidth()[0])
    except (re.error, RecursionError, OverflowError):
        return 0


def try_patterns(patterns: Iterable[str]) -> None:
    """Search texts with each of these, a few letters more at a time, so that one that takes for ever is found soon.

    Beyond a limit of its own, Oniguruma gives up with a panic, in less than a second. That is told with the text.
    """
    from tokenizers import Regex, pre_tokenizers

    started = time.thread_time()
    splits = {pattern: pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns}
    tried = [(_TRIED, 1, list(splits)), *((_text_for(pattern), 7, [pattern]) for pattern in splits)]
    for text, step, searched in tried:
        for end in range(1, len(text) + 1, step):
            for pattern in searched:
                splits[pattern].pre_tokenize_str(text[:end])
                if time.thread_time() - started > _MOST_SECONDS:
                    raise ValueError(f"the patterns take more than {_MOST_SECONDS} seconds to read {end} letters")


def _text_for(pattern: str) -> str:
    r"""A text of what a pattern searches for: its letters and digits in order, and each of them many times.

    >>> _text_for(r"q7(?:.|\p{L}){21}\z") == "q7" + "a" * 32 + "q" * 32 + "7" * 32
    True
    """
    letters = re.sub(r"\\[pPx]\{[^}]*\}|\\.|\{[\d,]*\}|[\W_]", "", pattern)[:_LONGEST_RUN]
    return letters + "".join(letter * _LONGEST_RUN for letter in [*dict.fromkeys("a" + letters)][:_OWN_LETTERS])
