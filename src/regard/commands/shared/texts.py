"""The text of a command: a sentence, a file, or standard input."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

# The second half repeats the first, so that heads that copy can be recognised. (Lewis Carroll)
REPEATED = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)


LARGEST = 64 << 20  # bytes of a text: many more tokens than any model reads


def read_text(text: str | None) -> str:
    """Standard input for -, a file, or the sentence itself; without a text, one that repeats itself."""
    if text is None:
        return REPEATED
    if text == "-":
        content = sys.stdin.read()
    elif os.path.isfile(text):
        if (size := os.path.getsize(text)) > LARGEST:
            raise ValueError(f"{text} has {size:,} bytes, and a text here has at most {LARGEST:,}; give a part of it")
        try:
            content = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            from regard.gpt.train.tokens import not_text

            reason = not_text(error.object) or f"not UTF-8 text (byte {error.start})"
            raise ValueError(f"{text} is {reason}; give a text in UTF-8") from None
    elif is_model(text):
        raise ValueError(f"{text} is a model, not a text; give it with --model {shlex.quote(text)}")
    elif os.path.isdir(text):
        raise ValueError(f"{text} is a directory; name a file in it")
    elif _looks_like_a_path(text):
        raise ValueError(f"there is no file {text}; give a file, a sentence in quotes, or - for standard input")
    else:
        content = text
    if not content.strip():
        raise ValueError(f"the text {shlex.quote(text)} is empty; give it at least a word")
    return content


def is_model(text: str) -> bool:
    """Is this the name of the model in the package, or the directory of a model?

    >>> is_model("tiny"), is_model("tiny cats")
    (True, False)
    """
    return text == "tiny" or os.path.isfile(os.path.join(text, "config.json"))


def _looks_like_a_path(text: str) -> bool:
    """Is it one word with a directory or an ending, as a file has?

    >>> [_looks_like_a_path(text) for text in ("hello", "today.txt", "notes/today", "Hello.", "See today.txt", "3.14")]
    [False, True, True, False, False, False]
    """
    return len(text.split()) == 1 and (os.sep in text or re.search(r"\w\.[A-Za-z]\w*$", text) is not None)
