"""The text of a command: a sentence, a file, or standard input; and titles that tell texts and models apart."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath

from regard.support.tokens import printable_token

# The second half repeats the first, so that heads that copy can be recognised. (Lewis Carroll)
REPEATED = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)
LARGEST = 64 << 20  # bytes of a text: many more tokens than any model reads
_TITLE = 32  # letters of a text that name it


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
    quoted = [f"“{text}”" for text in shown]
    titles = [
        printable_token(PurePath(name).name) if name is not None and os.path.isfile(name) else text
        for name, text in zip(names, quoted, strict=True)
    ]
    return titles if len(set(titles)) == len(titles) else quoted


def _beginning(text: str) -> str:
    """As many words as make a title."""
    if len(text) <= _TITLE:
        return text
    words, cut = text[:_TITLE].rpartition(" ")[0], text[: _TITLE - 1]
    return f"{words if len(words) > _TITLE // 2 else cut}…"


def model_titles(names: Sequence[str]) -> list[str]:
    """Short names of models: of directories the last part of their paths, or as many as tell two of them apart.

    >>> model_titles(["runs/first/step-100", "runs/first/step-200"]), model_titles(["a/model", "b/model"])
    (['step-100', 'step-200'], ['a/model', 'b/model'])
    >>> model_titles(["/home/ann/runs/model"]), model_titles(["openai/gpt2"])
    (['model'], ['openai/gpt2'])
    """
    parts = [PurePath(name).parts for name in names]
    if len(names) == 1:
        is_path = Path(names[0]).expanduser().is_dir() or PurePath(names[0]).is_absolute()
        return [parts[0][-1]] if is_path and parts[0] else list(names)
    for count in range(1, max(map(len, parts)) + 1):
        titles = ["/".join(one[-count:]) for one in parts]
        if len(set(titles)) == len(titles):
            return titles
    return list(names)
