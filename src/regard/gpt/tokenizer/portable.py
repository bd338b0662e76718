"""A byte-level BPE tokenizer for programs that are not Python: its tables as JSON, its patterns as JavaScript's.

The page encodes what people type with it (show/page/js/model/tokenizer.js). What it cannot do exactly as `tokenizers`
does is refused here by name, before a page is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NoReturn

from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.support.tokens import byte_of_character

TABLES_FORMAT = 1
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # what ByteLevel splits by itself
_FORMS = {"NFC", "NFD", "NFKC", "NFKD"}
# What a pattern is made of; what else there is, is refused.
_PART = re.compile(
    r"(?P<group>\(\?i:|\(\?<?[:=!]|[()|])|(?P<property>\\[pP]\{[A-Za-z]{1,2}\})|(?P<space>\\[sS])|(?P<class>\[\^?|\])"
    r"|(?P<escape>\\[rntvf\\.\[\](){}?*+|^$/-])|(?P<count>[?*+]|\{\d{1,4}(?:,\d{0,4})?\})|(?P<text>[^\\])",
    re.DOTALL,
)
_PROPERTIES = {*"LNMPSZ", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No"}
_OTHER_CASES = {"s": "\u017f", "k": "\u212a"}  # letters that are the same as an ASCII letter but for their case


def portable_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    r"""Everything that encodes a text, as JSON values.

    >>> tokenizer = Tokenizer.train(["the cat sat on the mat, the cat sat"], vocab_size=262)
    >>> portable_tokenizer(tokenizer)["merges"][:3]  # tokens 65 and 84, "a" and "t", were joined to 257
    [65, 84, 257]
    """
    content = json.loads(tokenizer.to_json())
    model = content["model"]
    if model["type"] != "BPE" or model.get("byte_fallback"):
        _refuse(f"a {model['type']} model" + " with byte_fallback" * bool(model.get("byte_fallback")))
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            _refuse(f"a BPE model with {name}={model[name]!r}")
    if (content["decoder"] or {}).get("type") != "ByteLevel":
        _refuse(f"the decoder {(content['decoder'] or {}).get('type')}")
    vocabulary = dict(model["vocab"])
    missing = [character for character in byte_of_character() if character not in vocabulary]
    if missing:
        _refuse(f"a vocabulary without {len(missing)} of the 256 bytes")
    splits, prefix_space = _splits(content["pre_tokenizer"])
    size = max(chain(vocabulary.values(), (one["id"] for one in content["added_tokens"]))) + 1
    names = {id: name for name, id in vocabulary.items()}
    return {
        "format": TABLES_FORMAT,
        "tokens": [names.get(id) for id in range(size)],
        "bytes": [
            vocabulary[character] for character, _ in sorted(byte_of_character().items(), key=lambda one: one[1])
        ],
        "merges": list(chain.from_iterable(_merges(model["merges"], vocabulary))),
        "whole_words": bool(model.get("ignore_merges")),
        "normalizers": list(_normalizers(content["normalizer"])),
        "splits": splits,
        "prefix_space": prefix_space,
        "added": [_added(one) for one in content["added_tokens"]],
    }


def _merges(merges: list[Any], vocabulary: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    """Two tokens and what they are joined to, the first merge first."""
    for merge in merges:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        yield vocabulary[first], vocabulary[second], vocabulary[first + second]


def _normalizers(part: Mapping[str, Any] | None) -> Iterator[str]:
    for one in _sequence(part, "normalizers"):
        if one["type"] not in _FORMS:
            _refuse(f"the normalizer {one['type']}")
        yield one["type"]


def _splits(part: Mapping[str, Any] | None) -> tuple[list[str], bool]:
    """The patterns that cut a text into words, one after the other; does a text without a space in front get one?"""
    *before, last = _sequence(part, "pretokenizers") or [{"type": "None"}]
    if last["type"] != "ByteLevel":
        _refuse(f"the pre-tokenizer {last['type']} without ByteLevel after it")
    patterns = [_GPT2] if last.get("use_regex", True) else []
    for one in reversed(before):
        if one["type"] != "Split" or one.get("invert") or one["behavior"] != "Isolated":
            _refuse(f"the pre-tokenizer {one['type']}" + f" with behavior={one.get('behavior')}" * ("behavior" in one))
        pattern = one["pattern"]
        patterns.insert(
            0, pattern["Regex"] if "Regex" in pattern else re.sub(r"[][\\^$.*+?(){}|]", r"\\\g<0>", pattern["String"])
        )
    if last["add_prefix_space"] and before:
        _refuse("add_prefix_space after other pre-tokenizers")
    return [_javascript(pattern) for pattern in patterns], last["add_prefix_space"]


def _quoted(text: str) -> str:
    """A pattern that finds this text only."""
    return re.sub(r"[][\\^$.*+?(){}|]", r"\\\g<0>", text)


def _sequence(part: Mapping[str, Any] | None, name: str) -> list[Any]:
    if part is None:
        return []
    return (
        list(chain.from_iterable(_sequence(one, name) for one in part[name])) if part["type"] == "Sequence" else [part]
    )


def _added(token: Mapping[str, Any]) -> dict[str, Any]:
    """A token that is no result of merges. Names of special ones in a text are encoded as text, as `encode` does."""
    if not token["special"] and (token["single_word"] or token["lstrip"] or token["rstrip"]):
        _refuse(f"the added token {token['content']!r} with single_word, lstrip or rstrip")
    return {"id": token["id"], "content": token["content"], "in_text": not token["special"]}


def _javascript(pattern: str) -> str:
    r"""A pattern of Oniguruma as JavaScript's, with the flag u.

    >>> _javascript(r"(?i:'t)|\s+(?!\S)")
    "(?:'[tT])|\\p{White_Space}+(?!\\P{White_Space})"
    """
    return _Translation(pattern).text


class _Translation:
    """A pattern that is translated part by part."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.groups: list[bool] = []  # of those that are open: are letters the same in either case?
        self.is_class, self.is_countable = False, False  # is [ open; may a count follow?
        self.text = ""
        while self.at < len(pattern):
            found = _PART.match(pattern, self.at)
            if found is None or found.lastgroup is None:
                self._refuse(pattern[self.at : self.at + 12])
            kind = found.lastgroup
            if self.is_class and kind in ("group", "count"):
                kind = "literal" if len(found[0]) == 1 else self._refuse(found[0])
            self.text += getattr(self, f"_{kind}")(found[0])
            self.is_countable = kind not in ("count", "group") or found[0] == ")"
            self.at = found.end()

    def _refuse(self, text: str) -> NoReturn:
        _refuse(f"the pattern {self.pattern!r}, with {text!r}")

    def _literal(self, text: str) -> str:
        return f"\\{text}"

    def _group(self, text: str) -> str:
        if text == ")" and self.groups:
            self.groups.pop()
        elif text.startswith("("):
            self.groups.append(text == "(?i:" or bool(self.groups and self.groups[-1]))
        return "(?:" if text == "(?i:" else text

    def _class(self, text: str) -> str:
        if self.is_class == (text != "]"):
            self._refuse(text)
        self.is_class = not self.is_class
        return text

    def _space(self, text: str) -> str:
        return r"\p{White_Space}" if text == r"\s" else r"\P{White_Space}"

    def _property(self, text: str) -> str:
        return text if text[3:-1] in _PROPERTIES else self._refuse(text)

    def _escape(self, text: str) -> str:
        return "-" if text == r"\-" and not self.is_class else text

    def _count(self, text: str) -> str:
        return text if self.is_countable else self._refuse(text)  # of a count it would be possessive, or lazy

    def _text(self, text: str) -> str:
        if text in "^$.&{}":
            self._refuse(text)
        if not (self.groups and self.groups[-1] and text.isalpha()):
            return text
        if not text.isascii():
            self._refuse(text)
        cases = text.lower() + text.upper() + _OTHER_CASES.get(text.lower(), "")
        return cases if self.is_class else f"[{cases}]"


def _refuse(what: str) -> NoReturn:
    raise ValueError(
        f"this tokenizer has {what}, which the page cannot run; it runs byte-level BPE, as in GPT-2, Llama 3 and Qwen"
    )
