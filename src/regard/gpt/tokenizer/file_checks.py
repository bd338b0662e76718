"""tokenizer.json, checked on paper before the Rust library `tokenizers` reads it.

The library believes the file: an id near 2³¹ makes it allocate gigabytes, and some settings make it panic when they are
read, or with the first text. So size, ids and every part are checked here. What the tables below leave out is refused:
it makes the library panic, take exponential time or allocate without bounds.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from regard.gpt.tokenizer.growth import check_growth, repeats_in_template
from regard.gpt.tokenizer.patterns import LONGEST, is_pattern, is_replaced_pattern, try_patterns
from regard.support.printable import printable_errors, readable
from regard.support.untrusted_json import MOST, parse_json

LARGEST = 128 << 20  # bytes; the largest of known models have 35 MB
_SPARE_IDS = 65_536  # ids may have gaps: a vocabulary of n tokens has ids below 2 · n + this
MOST_CHARACTERS = 500_000  # of all added tokens; the library takes 70 bytes for each
MOST_TOKENS = 25_000  # that are added; transformers takes 2 KB for each, and a square of time
_MEAN_PIECE, _SPARE_PIECES = 16, 50_000  # characters of a token of a Unigram model, which takes 300 bytes for each
_MOST_PARTS = 64  # normalizers and the like in one file; tokens in a template
_DEEPEST = 8  # sequences of normalizers and the like in one another
_LARGEST_SIZE = 1 << 24
_LONGEST_PIECE = 512  # characters of a token of a Unigram model, which compares each with every place of a text
_LONGEST_WORD = 1000  # characters of a word for WordPiece, which takes the square of it; models have 100 or 200

Check = Callable[[Any], bool]


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check, most: int | float = _MOST_PARTS) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(check, value))


def _pair(first: Check, second: Check) -> Check:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


def _object(**fields: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(check(value.get(name)) for name, check in fields.items())


def _values(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _string(least: int, most: int | float) -> Check:
    return lambda value: isinstance(value, str) and least <= len(value) <= most


def _each(check: Check, *fields: str) -> dict[str, Check]:
    return dict.fromkeys(fields, check)


_is_string, _is_text, _is_name = _string(0, math.inf), _string(0, LONGEST), _string(1, LONGEST)
_is_character = _string(1, 1)
_is_flag = _optional(lambda value: type(value) is bool)
_is_text_or_none = _optional(_is_text)
_is_share = _optional(lambda value: type(value) in (int, float) and 0 <= value <= 1)
_is_pair = _pair(_is_string, _is_string)
_are_scored = _list_of(_pair(_is_string, lambda value: type(value) in (int, float)), math.inf)
_are_parts = _list_of(lambda part: True, math.inf)  # each is checked by itself


def is_size(value: Any) -> bool:
    """Is it a length that a tokenizer may have?"""
    return type(value) is int and 0 <= value <= _LARGEST_SIZE


def _is_word(value: Any) -> bool:
    return is_size(value) and value <= _LONGEST_WORD


def _is_charsmap(value: Any) -> bool:
    """SentencePiece's table of replacements: a double-array trie, whose every step must stay inside it, and texts."""
    try:
        raw = base64.b64decode(value, validate=True)
        size = int.from_bytes(raw[:4], "little")
        texts = raw[4 + size :]
        texts.decode()
    except (TypeError, ValueError):
        return False
    if len(raw) < 8 or size % 4 or not 0 < size <= len(raw) - 4:
        return False
    units = np.frombuffer(raw[4 : 4 + size], "<u4").astype(np.int64)
    is_step = units >> 31 == 0  # the others are values
    is_step[0] = True  # where every search begins
    steps = units[is_step]
    targets = np.flatnonzero(is_step) ^ ((steps >> 10) << ((steps & 512) >> 6))
    if not ((targets | 255) < len(units)).all():
        return False
    values = units[targets[steps & 256 > 0]] & 0x7FFFFFFF
    starts = {0} | {i + 1 for i, byte in enumerate(texts) if byte == 0}  # a text begins after the end of another
    return set(values.tolist()) <= starts


def _is_template_item(value: Any) -> bool:
    return _are_template_tokens(value) and len(value) == 1 and value.keys() <= {"SpecialToken", "Sequence"}


_are_template_tokens = _values(_object(id=_is_text, type_id=is_size))
_are_special_tokens = _values(_object(ids=_list_of(is_size), tokens=_list_of(_is_text)))
_NOTHING: dict[str, Check] = {}
_BYTE_LEVEL = _each(_is_flag, "add_prefix_space", "trim_offsets", "use_regex")
_METASPACE = {
    **_each(_is_flag, "add_prefix_space", "split"),
    "replacement": _is_character,
    "prepend_scheme": _is_text_or_none,
}
_ENDS = _each(_pair(_is_text, is_size), "sep", "cls")
# The parts of a file, and what each of their fields may hold. A Sequence has one field: the parts inside it.
KINDS: dict[str, dict[str, dict[str, Check]]] = {
    "normalizer": {
        **dict.fromkeys(("StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "ByteLevel"), _NOTHING),
        "BertNormalizer": _each(_is_flag, "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"),
        "Strip": _each(_is_flag, "strip_left", "strip_right"),
        "Precompiled": {"precompiled_charsmap": _is_charsmap},
        "Replace": {"pattern": is_replaced_pattern, "content": _is_text},
        "Prepend": {"prepend": _is_name},
        "Sequence": {"normalizers": _are_parts},
    },
    "pre_tokenizer": {
        **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"), _NOTHING),
        "ByteLevel": _BYTE_LEVEL,
        "CharDelimiterSplit": {"delimiter": _is_character},
        "Metaspace": _METASPACE,
        "Split": {"pattern": is_pattern, "behavior": _is_text, "invert": _is_flag},
        "Punctuation": {"behavior": _is_text_or_none},
        "Digits": {"individual_digits": _is_flag},
        "FixedLength": {"length": lambda value: is_size(value) and value >= 1},
        "Sequence": {"pretokenizers": _are_parts},
    },
    "post_processor": {
        "BertProcessing": _ENDS,
        "RobertaProcessing": _ENDS | _each(_is_flag, "trim_offsets", "add_prefix_space"),
        "ByteLevel": _BYTE_LEVEL,
        "TemplateProcessing": {
            **_each(_list_of(_is_template_item), "single", "pair"),
            "special_tokens": _are_special_tokens,
        },
        "Sequence": {"processors": _are_parts},
    },
    "decoder": {
        **dict.fromkeys(("Fuse", "ByteFallback"), _NOTHING),
        "BPEDecoder": {"suffix": _is_text},
        "ByteLevel": _BYTE_LEVEL,
        "WordPiece": {"prefix": _is_text, "cleanup": _is_flag},
        "Metaspace": _METASPACE,
        "CTC": {"pad_token": _is_text, "word_delimiter_token": _is_text, "cleanup": _is_flag},
        "Replace": {"pattern": is_replaced_pattern, "content": _is_text},
        # With a stop above 0, tokens that are shorter than it make the library panic.
        "Strip": {"content": _is_character, "start": is_size, "stop": lambda value: value == 0 and is_size(value)},
        "Sequence": {"decoders": _are_parts},
    },
}
MODELS: dict[str, dict[str, Check]] = {
    "BPE": {
        "merges": _list_of(lambda merge: isinstance(merge, str) or _is_pair(merge), math.inf),
        "dropout": _is_share,
        **_each(_is_text_or_none, "unk_token", "continuing_subword_prefix", "end_of_word_suffix"),
        **_each(_is_flag, "fuse_unk", "byte_fallback", "ignore_merges"),
    },
    "WordPiece": {"unk_token": _is_text, "continuing_subword_prefix": _is_text, "max_input_chars_per_word": _is_word},
    "WordLevel": {"unk_token": _is_text},
    "Unigram": {"vocab": lambda value: bool(value) and _are_scored(value), "byte_fallback": _is_flag},
}
_has_stride = _object(stride=is_size, max_length=is_size)
_is_truncation = _optional(lambda value: _has_stride(value) and value["stride"] < max(value["max_length"], 1))
_is_padding = _optional(
    _object(
        strategy=lambda value: not isinstance(value, dict) or is_size(value.get("Fixed")),
        pad_to_multiple_of=_optional(lambda value: is_size(value) and value >= 1),
    )
)
_ADDED_TOKEN = {"content": _is_name, **_each(_is_flag, "single_word", "lstrip", "rstrip", "normalized", "special")}


class TokenizerContent(NamedTuple):
    """The content of a tokenizer.json that passed the checks."""

    raw: bytes
    encoding_can_panic: bool  # patterns and normalizers still fail with some texts
    decoding_can_panic: bool
    patterns: tuple[str, ...]  # its regular expressions


@printable_errors()
def check_tokenizer_file(path: Path) -> TokenizerContent:
    """The content of a tokenizer.json, if it is one that can be loaded; else a ValueError that names it."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise ValueError(f"the file has {size:,} bytes, more than the {LARGEST:,} that any tokenizer needs")
        with path.open("rb") as file:
            return check_tokenizer(file.read(size))
    except ValueError as error:
        raise not_a_tokenizer(path, error) from None


def not_a_tokenizer(path: Path, error: ValueError) -> ValueError:
    """The error for a tokenizer.json that cannot be loaded."""
    return ValueError(f"{path} is no tokenizer that can be read: {error}; get the file again")


def check_tokenizer(raw: bytes) -> TokenizerContent:
    """Check the content of a tokenizer.json.

    >>> check_tokenizer(b'{"model": {"type": "WordLevel", "vocab": {"cat": 2147483647}, "unk_token": "cat"}}')
    Traceback (most recent call last):
    ValueError: the id of cat is 2147483647; ids of 1 tokens must be whole numbers below 65,538
    """
    content = parse_json(raw, MOST + len(raw) // 4)
    if not isinstance(content, dict):
        raise ValueError(f"it must be a JSON object, but is a {type(content).__name__}")
    model, added = content.get("model"), content.get("added_tokens") or []
    if not isinstance(model, dict):
        _refuse("model", model, "it must be a JSON object")
    _check_added(model, added)
    parts = _check_parts(content, added)
    # regard neither truncates nor pads, but a library that reads the same file may.
    if not _is_truncation(truncation := content.get("truncation")):
        _refuse("truncation", truncation, "it must have a max_length, and a stride below it")
    if not _is_padding(padding := content.get("padding")):
        _refuse("padding", padding, f"it must be an object, whose lengths are whole numbers up to {_LARGEST_SIZE:,}")
    templates = [repeats_in_template(part) for _, part in parts if part["type"] == "TemplateProcessing"]
    repeats = len(templates) > 1 or max(templates, default=1) > 1
    can_panic = content.get("normalizer") is not None or bool(_regexes(parts)) or repeats
    decoders = [(stage, part) for stage, part in parts if stage == "decoder"]
    return TokenizerContent(raw, can_panic, bool(_regexes(decoders)), _regexes(parts))


def _check_added(model: Mapping[str, Any], added: Any) -> None:
    """Check the tokens of the model and those that were added to it."""
    if not isinstance(added, list) or not all(isinstance(one, dict) for one in added):
        _refuse("added_tokens", added, "it must be a list of tokens")
    _check_ids(model, added)
    _check_model(model)
    for one in added:
        _check_fields("a token of added_tokens", one, _ADDED_TOKEN)
        check_token_fields(one)
    if len(added) > MOST_TOKENS:
        _refuse("the number of added_tokens", len(added), f"it must be at most {MOST_TOKENS:,}")
    if (length := sum(len(one["content"]) for one in added)) > MOST_CHARACTERS:
        _refuse("the length of all added_tokens", length, f"it must be at most {MOST_CHARACTERS:,} characters")


def check_token_fields(token: Mapping[str, Any]) -> None:
    """Refuse an added token with fields that tokenizers does not know: it prints their names, whatever is in them."""
    for name in token:
        if name not in _ADDED_TOKEN and name not in ("id", "__type"):
            _refuse("a field of an added token", name, f"these are known: id, {', '.join(_ADDED_TOKEN)}")


def check_built(tokenizer: Any) -> None:
    """Check the parts of a tokenizer that another library built, perhaps from other files than a tokenizer.json."""
    content = {}
    for stage in KINDS:
        with suppress(Exception):  # a part that is not of the library: its own code, which no file brings
            content[stage] = json.loads(getattr(tokenizer, stage).__getstate__())
    parts = _check_parts(content, [])
    try_patterns(_regexes(parts))


def _check_parts(content: Mapping[str, Any], added: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Check the parts of a file and what they do together; each with its stage."""
    parts: list[tuple[str, dict[str, Any]]] = []
    for stage in KINDS:
        _check_part(stage, content.get(stage), parts)
    check_growth(parts, added)
    return parts


def _regexes(parts: list[tuple[str, dict[str, Any]]]) -> tuple[str, ...]:
    patterns = [part["pattern"] for _, part in parts if part["type"] in ("Replace", "Split")]
    return tuple(dict.fromkeys(pattern["Regex"] for pattern in patterns if "Regex" in pattern))


def _check_part(where: str, part: Any, parts: list[tuple[str, dict[str, Any]]], depth: int = 1) -> None:
    """Check a normalizer, pre-tokenizer, post-processor or decoder and those inside it, and add them to `parts`."""
    if part is None:
        return
    if not isinstance(part, dict):
        _refuse(where, part, "it must be a JSON object")
    if len(parts) == _MOST_PARTS or depth > _DEEPEST:
        _refuse(where, part, f"there are more than {_MOST_PARTS} parts, or they are nested more than {_DEEPEST} deep")
    kinds, kind = KINDS[where], part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        _refuse(f"the type of a {where}", kind, f"these are known: {', '.join(kinds)}")
    _check_fields(f"{where} {kind}", part, kinds[kind])
    parts.append((where, part))
    for field in kinds[kind] if kind == "Sequence" else ():
        for one in part[field]:
            _check_part(where, one, parts, depth + 1)
    for item in (*part["single"], *part["pair"]) if kind == "TemplateProcessing" else ():
        if "SpecialToken" in item and (name := item["SpecialToken"]["id"]) not in part["special_tokens"]:
            _refuse("a SpecialToken of TemplateProcessing", name, "special_tokens must have it")


def _refuse(what: str, value: Any, rule: str) -> NoReturn:
    raise ValueError(f"{what} is {readable(repr(value))}; {rule}")


def _check_fields(where: str, part: Mapping[str, Any], fields: Mapping[str, Check]) -> None:
    for field, is_valid in fields.items():
        if not is_valid(part.get(field)):
            value = repr(part[field]) if field in part else "missing"
            raise ValueError(f"{field} of {where} is {readable(value)}, which tokenizers cannot use")


def _check_ids(model: Mapping[str, Any], added: list[dict[str, Any]]) -> None:
    vocab = model.get("vocab")
    if not isinstance(vocab, (dict, list)):
        _refuse("the vocabulary", vocab, "it must be a JSON object of ids, or a list of tokens with scores")
    count = len(vocab) + len(added)
    largest = 2 * count + _SPARE_IDS
    ids = [] if isinstance(vocab, list) else list(vocab.items())
    for token, i in [*ids, *((one.get("content"), one.get("id")) for one in added)]:
        if type(i) is not int or not 0 <= i < largest:
            rule = f"ids of {count:,} tokens must be whole numbers below {largest:,}"
            raise ValueError(f"the id of {readable(token)} is {readable(i)}; {rule}")
    tokens: dict[int, str] = {}
    for token, i in ids:
        if tokens.setdefault(i, token) != token:
            raise ValueError(f"the id of {readable(tokens[i])} and {readable(token)} is {i}; each must have its own")


def _check_model(model: Mapping[str, Any]) -> None:
    kind, vocab = model.get("type") or _unnamed_kind(model), model["vocab"]
    if not isinstance(kind, str) or kind not in MODELS:
        _refuse("the type of the model", kind, f"these are known: {', '.join(MODELS)}")
    if isinstance(vocab, list) != (kind == "Unigram"):
        _refuse("the vocabulary", type(vocab).__name__, f"a {kind} model has another")
    _check_fields(f"the {kind} model", model, MODELS[kind])
    if kind == "BPE":
        _check_merges(model["merges"], vocab, model.get("continuing_subword_prefix") or "")
    if kind == "Unigram":
        length, most = sum(len(piece) for piece, _ in vocab), _MEAN_PIECE * len(vocab) + _SPARE_PIECES
        if length > most:
            _refuse("the length of all tokens", length, f"so many of them may have at most {most:,} characters")
        if (longest := max(len(piece) for piece, _ in vocab)) > _LONGEST_PIECE:
            _refuse("the longest token", longest, f"it must be at most {_LONGEST_PIECE} characters")
        unknown = model.get("unk_id")
        if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(vocab)):
            _refuse("unk_id", unknown, f"it must be below {len(vocab)}, the number of tokens")


def _check_merges(merges: list[Any], vocab: Mapping[str, Any], prefix: str) -> None:
    """Two tokens make a third, which the vocabulary must have; the second is joined without its prefix."""
    for merge in merges:
        if isinstance(merge, str) and merge.startswith("#version"):
            continue
        first, second = merge if isinstance(merge, list) else merge.partition(" ")[::2]
        if not second.startswith(prefix):
            _refuse("a merge", merge, f"the second of the two must begin with {readable(prefix)}, as in this model")
        if first + second[len(prefix) :] not in vocab:
            _refuse("a merge", merge, "the vocabulary does not have what it makes")


def _unnamed_kind(model: Mapping[str, Any]) -> str:
    """The kind of a model in old files, which do not name it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"
