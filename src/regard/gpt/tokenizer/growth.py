"""How much longer the parts of a tokenizer.json can make a text, told before one is read.

Each part works on the result of the one before, so growth multiplies: 40 parts that double a text are a terabyte. The
table has the most characters that each part makes of one.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from regard.gpt.tokenizer.patterns import least_width
from regard.support.printable import readable

MOST = 64  # times longer, besides what one Unicode form and lower case do
MOST_CHARACTERS = 1 << 24  # of added tokens, which are normalized when the file is loaded
# A text in a Unicode form, or in lower case, stays as it is: one of each is not counted, as many models have both.
_ONCE = {**dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD"), "form"), "Lowercase": "case"}
Part = Mapping[str, Any]


def _of_replacement(part: Part) -> float:
    return len(part["content"]) / least_width(part["pattern"])


def _of_charsmap(part: Part) -> float:
    raw = base64.b64decode(part["precompiled_charsmap"])
    texts = raw[4 + int.from_bytes(raw[:4], "little") :].decode()
    return max(map(len, texts.split("\0")))


def repeats_in_template(part: Part) -> int:
    """How often a text is in what is made of it; what else is added does not multiply."""
    fields = [[item["Sequence"]["id"] for item in part[field] if "Sequence" in item] for field in ("single", "pair")]
    return max(texts.count(text) for texts in fields for text in ("A", "B"))


def _where_empty(field: str) -> Callable[[Part], float]:
    """An empty text is found, and replaced, before and after every character."""
    return lambda part: 1 if part[field] else 3


# The most characters of one; a number, or a function of the part. Those that are not here add none.
GROWTH: dict[str, dict[str, float | Callable[[Part], float]]] = {
    "normalizer": {
        "NFC": 3,
        "NFD": 4,
        "NFKC": 18,
        "NFKD": 18,
        "Lowercase": 2,
        "BertNormalizer": 6,  # spaces around, and two letters for one
        "ByteLevel": 4,
        "Precompiled": _of_charsmap,
        "Replace": _of_replacement,
        "Prepend": lambda part: 1 + len(part["prepend"]),
    },
    "pre_tokenizer": {"ByteLevel": 5, "Metaspace": 2},  # a space can be put before every piece, perhaps one character
    "post_processor": {"TemplateProcessing": repeats_in_template},
    "decoder": {
        "WordPiece": 2,
        "Replace": _of_replacement,
        "BPEDecoder": _where_empty("suffix"),
        "CTC": _where_empty("word_delimiter_token"),
    },
}
_STAGES = (("normalizer", "pre_tokenizer"), ("post_processor",), ("decoder",))  # what works on the same text


def check_growth(parts: Iterable[tuple[str, Part]], added: Iterable[Part] = ()) -> None:
    """Refuse parts that together can make a text many times longer; added: tokens, which normalizers work on.

    >>> check_growth([("normalizer", {"type": "ByteLevel"})] * 40)
    Traceback (most recent call last):
    ValueError: normalizer ByteLevel is one part too many: together they may make a text at most 64 times longer
    """
    parts = list(parts)
    for stage in _STAGES:
        total, once = 1.0, dict[str, float]()
        for where, part in parts:
            growth = GROWTH[where].get(part["type"], 1) if where in stage else 1
            factor = max(float(growth if isinstance(growth, (int, float)) else growth(part)), 1.0)
            same = _ONCE.get(part["type"])
            if same is not None and same not in once:
                once[same] = factor
            else:
                total *= factor
            if total > MOST:
                raise ValueError(
                    f"{where} {readable(part['type'])} is one part too many: together they may make a text at most "
                    f"{MOST} times longer"
                )
        if "normalizer" in stage:
            length = sum(len(one["content"]) for one in added if one.get("normalized"))
            times = total * math.prod(once.values())
            if length * times > MOST_CHARACTERS:
                raise ValueError(
                    f"{length:,} characters of added_tokens are normalized, which may make them {times:,.0f} times "
                    f"longer; at most {MOST_CHARACTERS:,} are read"
                )
