"""tokenizer.json, checked on paper before the Rust library `tokenizers` reads it.

The library believes the file: an id near 2³¹ makes it allocate gigabytes, and some settings make it panic when they are
read, or with the first text. So size, ids and every part are checked here against what a part may hold. Parts that this
table does not have are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from regard.gpt.tokenizer.parts import ADDED_TOKEN, INSIDE, KINDS, LARGEST_SIZE, MODELS, MOST_PARTS, Check, is_size
from regard.support.printable import printable_errors, readable
from regard.support.untrusted_json import MOST, parse_json

LARGEST = 128 << 20  # bytes; the largest of known models have 35 MB
_SPARE_IDS = 65_536  # ids may have gaps: a vocabulary of n tokens has ids below 2 · n + this
_MOST_ADDED = 500_000  # characters of all added tokens; the library takes 70 bytes for each
_MEAN_PIECE, _SPARE_PIECES = 16, 50_000  # characters of a token of a Unigram model, which takes 300 bytes for each
_DEEPEST = 8  # sequences of normalizers and the like in one another
_MOST_GROWTH = 64  # how many times longer all replacements together can make a text


class TokenizerContent(NamedTuple):
    """The content of a tokenizer.json that passed the checks."""

    raw: bytes
    encoding_can_panic: bool  # patterns and normalizers still fail with some texts
    decoding_can_panic: bool


@printable_errors()
def check_tokenizer_file(path: Path) -> TokenizerContent:
    """The content of a tokenizer.json, if it is one that can be loaded; else a ValueError that names it."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise ValueError(f"the file has {size:,} bytes, more than the {LARGEST:,} that any tokenizer needs")
        with path.open("rb") as file:
            raw = file.read(size)
        return check_tokenizer(raw)
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
    model = content.get("model")
    if not isinstance(model, dict):
        _refuse("model", model, "it must be a JSON object")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(one, dict) for one in added):
        _refuse("added_tokens", added, "it must be a list of tokens")
    _check_ids(model, added)
    _check_model(model)
    for one in added:
        _check_fields("a token of added_tokens", one, ADDED_TOKEN)
    if (length := sum(len(one["content"]) for one in added)) > _MOST_ADDED:
        _refuse("the length of all added_tokens", length, f"it must be at most {_MOST_ADDED:,} characters")
    parts = _Parts()
    for name, kinds in KINDS.items():
        parts.check(name, content.get(name), kinds, 1)
    _check_lengths(content)
    patterns = parts.with_patterns
    return TokenizerContent(raw, content.get("normalizer") is not None or bool(patterns), "decoder" in patterns)


class _Parts:
    """The normalizers, pre-tokenizers, post-processors and decoders of a file."""

    def __init__(self) -> None:
        self.count = 0
        self.with_patterns: set[str] = set()  # the fields of the file that have regular expressions
        self.growth = dict.fromkeys(KINDS, 1.0)

    def check(self, where: str, part: Any, kinds: Mapping[str, Mapping[str, Check]], depth: int) -> None:
        """Check one part, and those inside it."""
        if part is None:
            return
        self.count += 1
        if not isinstance(part, dict):
            _refuse(where, part, "it must be a JSON object")
        if self.count > MOST_PARTS or depth > _DEEPEST:
            _refuse(
                where, part, f"there are more than {MOST_PARTS} parts, or they are nested more than {_DEEPEST} deep"
            )
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            _refuse(f"the type of a {where}", kind, f"these are known: {', '.join(kinds)}")
        _check_fields(f"{where} {kind}", part, kinds[kind])
        for field in INSIDE.keys() & part.keys() if kind == "Sequence" else ():
            for one in part[field]:
                self.check(where, one, kinds, depth + 1)
        if kind in ("Replace", "Split") and "Regex" in part["pattern"]:
            self.with_patterns.add(where)
        if kind == "Replace":
            self._grow(where, part)
        if kind == "TemplateProcessing":
            _check_template(part)

    def _grow(self, where: str, part: Mapping[str, Any]) -> None:
        """How much longer a text becomes; every replacement of a sequence works on the result of the one before."""
        replaced = len(part["pattern"].get("String", "")) or 1
        self.growth[where] *= max(len(part["content"]) / replaced, 1)
        if self.growth[where] > _MOST_GROWTH:
            _refuse(where, part, f"replacements may make a text at most {_MOST_GROWTH} times longer")


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
            raise ValueError(
                f"the id of {readable(token)} is {readable(i)}; ids of {count:,} tokens must be whole numbers below "
                f"{largest:,}"
            )


def _check_model(model: Mapping[str, Any]) -> None:
    kind = model.get("type") or _untold_kind(model)
    if not isinstance(kind, str) or kind not in MODELS:
        _refuse("the type of the model", kind, f"these are known: {', '.join(MODELS)}")
    if isinstance(model["vocab"], list) != (kind == "Unigram"):
        _refuse("the vocabulary", type(model["vocab"]).__name__, f"a {kind} model has another")
    _check_fields(f"the {kind} model", model, MODELS[kind])
    if kind == "BPE":
        _check_merges(model["merges"], model["vocab"], model.get("continuing_subword_prefix") or "")
    if kind == "Unigram":
        length, most = sum(len(piece) for piece, _ in model["vocab"]), _MEAN_PIECE * len(model["vocab"]) + _SPARE_PIECES
        if length > most:
            _refuse("the length of all tokens", length, f"so many of them may have at most {most:,} characters")
        unknown = model.get("unk_id")
        if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(model["vocab"])):
            _refuse("unk_id", unknown, f"it must be below {len(model['vocab'])}, the number of tokens")


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


def _untold_kind(model: Mapping[str, Any]) -> str:
    """The kind of a model in old files, which do not name it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _check_template(part: Mapping[str, Any]) -> None:
    names = part["special_tokens"]
    for item in (*part["single"], *part["pair"]):
        name = item["SpecialToken"]["id"] if "SpecialToken" in item else None
        if name is not None and name not in names:
            _refuse("a SpecialToken of TemplateProcessing", name, "special_tokens must have it")


def _check_lengths(content: Mapping[str, Any]) -> None:
    """Truncation and padding; regard does neither, but a library that reads the same file may."""
    truncation, padding = content.get("truncation"), content.get("padding")
    if truncation is not None:
        is_object = isinstance(truncation, dict)
        lengths: list[Any] = [truncation.get(k) for k in ("stride", "max_length")] if is_object else [None]
        if not all(map(is_size, lengths)) or lengths[0] >= max(lengths[1], 1):
            _refuse("truncation", truncation, "it must have a max_length, and a stride below it")
    if padding is not None:
        if not isinstance(padding, dict):
            _refuse("padding", padding, "it must be a JSON object")
        strategy, multiple = padding.get("strategy"), padding.get("pad_to_multiple_of")
        fixed = strategy.get("Fixed") if isinstance(strategy, dict) else 0
        if not is_size(fixed) or (multiple is not None and not (is_size(multiple) and multiple >= 1)):
            _refuse("padding", padding, f"lengths must be whole numbers, of at most {LARGEST_SIZE:,}")
