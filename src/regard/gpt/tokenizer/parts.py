"""The parts of a tokenizer.json: which there are, and what each of their fields may hold.

What is left out here makes the Rust library `tokenizers` panic, take exponential time or allocate without bounds.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

MOST_PARTS = 64  # normalizers and the like in one file; tokens in a template
_LONGEST = 10_000  # characters of a setting
LARGEST_SIZE = 1 << 24

Check = Callable[[Any], bool]


def _is_flag(value: Any) -> bool:
    return value is None or type(value) is bool


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _is_name(value: Any) -> bool:
    return _is_text(value) and value != ""


def _is_text_or_none(value: Any) -> bool:
    return value is None or _is_text(value)


def is_size(value: Any) -> bool:
    """Is it a length that a tokenizer may have?"""
    return type(value) is int and 0 <= value <= LARGEST_SIZE


def _is_character(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def _is_share(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= 1)


def _is_pattern(value: Any) -> bool:
    """A text, or a regular expression whose repeats take no long time."""
    if not isinstance(value, dict) or len(value) != 1 or not _is_text(next(iter(value.values()))):
        return False
    if "String" in value:
        return True
    repeats = [int(max(pair, key=len) or 1) for pair in _REPEAT.findall(value.get("Regex", "")[:_LONGEST_PATTERN])]
    return "Regex" in value and len(value["Regex"]) <= _LONGEST_PATTERN and math.prod(repeats) <= _MOST_REPEATS


_LONGEST_PATTERN = 2000
_MOST_REPEATS = 1000  # of all counted repeats together, as if they were nested
_REPEAT = re.compile(r"(?<!\\x)\{(\d{1,6})?(?:,(\d{1,6}))?\}")


def _is_replaced_pattern(value: Any) -> bool:
    """A pattern that does not match an empty text, with which the library panics; Python's `re` is asked."""
    if not _is_pattern(value) or not _is_name(next(iter(value.values()))):
        return False
    try:
        return "String" in value or not re.compile(_as_in_python(value["Regex"])).search("")
    except (re.error, RecursionError, OverflowError):
        return False


def _as_in_python(pattern: str) -> str:
    r"""An Oniguruma pattern in Python's syntax, near enough to ask if it matches nothing: \p{…} and \x{…} are \w."""
    return re.sub(r"\\[pPx]\{[^}]*\}", r"\\w", pattern)


def _are_merges(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(
        isinstance(one, str) or (isinstance(one, list) and len(one) == 2 and all(isinstance(t, str) for t in one))
        for one in value
    )


def _are_scored(value: Any) -> bool:
    return bool(value) and all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and type(one[1]) in (int, float)
        for one in value
    )


def _is_token_with_id(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0]) and is_size(value[1])


def _is_template(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_PARTS and all(_is_template_item(item) for item in value)


def _is_template_item(item: Any) -> bool:
    if not isinstance(item, dict) or len(item) != 1 or not item.keys() <= {"SpecialToken", "Sequence"}:
        return False
    inner = next(iter(item.values()))
    return isinstance(inner, dict) and _is_text(inner.get("id")) and is_size(inner.get("type_id"))


def _are_special_tokens(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, dict)
        and all(isinstance(one.get(k), list) and len(one[k]) <= MOST_PARTS for k in ("ids", "tokens"))
        and all(is_size(i) for i in one["ids"])
        and all(_is_text(token) for token in one["tokens"])
        for one in value.values()
    )


def _is_charsmap(value: Any) -> bool:
    """SentencePiece's table of replacements: a double-array trie, whose every step must stay inside it, and texts."""
    if not isinstance(value, str):
        return False
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 8 or size % 4 or not 0 < size <= len(raw) - 4:
        return False
    units = np.frombuffer(raw[4 : 4 + size], "<u4").astype(np.int64)
    texts = raw[4 + size :]
    try:
        texts.decode()
    except UnicodeDecodeError:
        return False
    is_step = units >> 31 == 0  # the others are values
    is_step[0] = True  # where every search begins
    steps = units[is_step]
    targets = np.flatnonzero(is_step) ^ ((steps >> 10) << ((steps & 512) >> 6))
    if not ((targets | 255) < len(units)).all():
        return False
    values = units[targets[steps & 256 > 0]] & 0x7FFFFFFF
    starts = {0} | {i + 1 for i, byte in enumerate(texts) if byte == 0}  # a text begins after the end of another
    return set(values.tolist()) <= starts


def _each(check: Check, *fields: str) -> dict[str, Check]:
    return dict.fromkeys(fields, check)


_NOTHING: dict[str, Check] = {}
_BYTE_LEVEL = _each(_is_flag, "add_prefix_space", "trim_offsets", "use_regex")
_METASPACE: dict[str, Check] = {
    "replacement": _is_character,
    "add_prefix_space": _is_flag,
    "split": _is_flag,
    "prepend_scheme": _is_text_or_none,
}
_PAIR = _each(_is_token_with_id, "sep", "cls")


def _are_parts(value: Any) -> bool:
    return isinstance(value, list)


INSIDE = _each(_are_parts, "normalizers", "pretokenizers", "processors", "decoders")
KINDS: dict[str, dict[str, dict[str, Check]]] = {
    "normalizer": {
        **dict.fromkeys(("StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "ByteLevel"), _NOTHING),
        "BertNormalizer": _each(_is_flag, "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"),
        "Strip": _each(_is_flag, "strip_left", "strip_right"),
        "Precompiled": {"precompiled_charsmap": _is_charsmap},
        "Replace": {"pattern": _is_replaced_pattern, "content": _is_text},
        "Prepend": {"prepend": _is_name},
        "Sequence": {"normalizers": _are_parts},
    },
    "pre_tokenizer": {
        **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"), _NOTHING),
        "ByteLevel": _BYTE_LEVEL,
        "CharDelimiterSplit": {"delimiter": _is_character},
        "Metaspace": _METASPACE,
        "Split": {"pattern": _is_pattern, "behavior": _is_text, "invert": _is_flag},
        "Punctuation": {"behavior": _is_text_or_none},
        "Digits": {"individual_digits": _is_flag},
        "FixedLength": {"length": lambda value: is_size(value) and value >= 1},
        "Sequence": {"pretokenizers": _are_parts},
    },
    "post_processor": {
        "BertProcessing": _PAIR,
        "RobertaProcessing": _PAIR | _each(_is_flag, "trim_offsets", "add_prefix_space"),
        "ByteLevel": _BYTE_LEVEL,
        "TemplateProcessing": {"single": _is_template, "pair": _is_template, "special_tokens": _are_special_tokens},
        "Sequence": {"processors": _are_parts},
    },
    "decoder": {
        **dict.fromkeys(("Fuse", "ByteFallback"), _NOTHING),
        "BPEDecoder": {"suffix": _is_text},
        "ByteLevel": _BYTE_LEVEL,
        "WordPiece": {"prefix": _is_text, "cleanup": _is_flag},
        "Metaspace": _METASPACE,
        "CTC": {"pad_token": _is_text, "word_delimiter_token": _is_text, "cleanup": _is_flag},
        "Replace": {"pattern": _is_pattern, "content": _is_text},
        # With a stop above 0, tokens that are shorter than it make the library panic.
        "Strip": {"content": _is_character, "start": is_size, "stop": lambda value: value == 0 and is_size(value)},
        "Sequence": {"decoders": _are_parts},
    },
}
MODELS: dict[str, dict[str, Check]] = {
    "BPE": {
        "merges": _are_merges,
        "dropout": _is_share,
        **_each(_is_text_or_none, "unk_token", "continuing_subword_prefix", "end_of_word_suffix"),
        **_each(_is_flag, "fuse_unk", "byte_fallback", "ignore_merges"),
    },
    "WordPiece": {"unk_token": _is_text, "continuing_subword_prefix": _is_text, "max_input_chars_per_word": is_size},
    "WordLevel": {"unk_token": _is_text},
    "Unigram": {"vocab": _are_scored, "byte_fallback": _is_flag},
}
ADDED_TOKEN = {"content": _is_name, **_each(_is_flag, "single_word", "lstrip", "rstrip", "normalized", "special")}
