"""Stated: what the text of a learner's file says about its tensors, where numbers allow two readings.

Names, comments and docstrings are evidence for what a layer is meant to be, never for whether it is right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

LONGEST_LINE = 1000  # characters: searching a line takes the square of its length at worst
_MOST_LINES = 2000

_BATCH = r"(b|bs|bsz|n|batch|batch_size|bsize|nbatch|batches)"
_TOKENS = r"(t|l|s|n|seq|seq_len|seqlen|seq_length|tokens|num_tokens|length|tgt_len|src_len|len|sequence|time|steps)"
_TOKENS_FIRST = (
    rf"(?i)\b(?!n\b){_TOKENS}\s*,\s*{_BATCH}\s*,\s*\w+\s*=\s*\w+\.(shape|size\(\))",
    rf"(?i)\(\s*(?!n\b){_TOKENS}\s*,\s*{_BATCH}\s*,\s*[\w ]+\)",
    r"(?i)batch_first\s*=\s*False|\b(tokens?|seq(uence)?|time)[- _]first\b",
)
_BATCH_FIRST = (
    rf"(?i)\b{_BATCH}\s*,\s*(?!b\b){_TOKENS}\s*,\s*\w+\s*=\s*\w+\.(shape|size\(\))",
    rf"(?i)\(\s*{_BATCH}\s*,\s*(?!b\b){_TOKENS}\s*,\s*[\w ]+\)",
    r"(?i)batch_first\s*=\s*True|\bbatch[- _]first\b(?!\s*=\s*False)",
)
# Does the text speak of positions?
names_positions = re.compile(
    r"(?i)rotary|rope\b|rotat|freq|theta|alibi|slope|relative|rel_|_rel\b|position|distance|bias_table|pos_(bias|emb)"
).search
names_window = re.compile(r"(?i)window|sliding|local|\bband|span").search
_POSITION_NAMES = (
    r"(?i)rotary|\brope|_rope|rotate_half|freqs_cis|alibi|slopes|rel(ative)?_?(pos|bias|att|key|emb)|pos(ition)?_?bias"
)
_SEES = r"(may|can|visible|see|keep|kept|allow|attend|look|valid|real|show)"
_NOT = r"(hid|mask(ed)?\b|not|ignore|pad|future|forbid|block)"
_IS = r"\s*(=|:|→|->|means?|is|are|where|for)\s*(\w+\s+){0,3}?"


def own_text(source: str, name: str) -> str:
    """The text of a class or function with the comments above it; all of the file where it is not found.

    >>> len(own_text(chr(10).join(["x = 1", "# (T, B, E)", "class A: ...", "class B: ..."]), "A"))
    24
    """
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _short(source)
    lines, start = source.splitlines(), 0
    for node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return _short("\n".join(lines[start : node.end_lineno]))
        start = node.end_lineno or start
    return _short(source)


def _short(text: str) -> str:
    return "\n".join(line for line in text.splitlines()[:_MOST_LINES] if len(line) <= LONGEST_LINE)


def is_tokens_first(source: str, contents: Mapping[str, Any]) -> bool:
    """Does anything say that x is (T, B, width)? A batch axis that is second by mistake says nothing, or the opposite.

    >>> is_tokens_first("T, B, E = x.shape", {}), is_tokens_first("B, T, E = x.shape", {})
    (True, False)
    """
    if any(re.search(pattern, source) for pattern in _TOKENS_FIRST):
        return True
    if contents.get("attributes", {}).get("batch_first") is False:
        return True
    inside = any(one["name"] == "MultiheadAttention" for one in contents.get("inside", ()))
    return inside and not any(re.search(pattern, source) for pattern in _BATCH_FIRST)


def has_positions(source: str) -> bool:
    """Is something in the code named after a kind of positions inside attention? A comment is not enough.

    >>> has_positions("q = apply_rotary(q)"), has_positions("# no rotary positions here")
    (True, False)
    """
    return any(re.search(_POSITION_NAMES, line.partition("#")[0]) for line in source.splitlines())


def has_window(source: str) -> bool:
    """Is something in the code named after a window?"""
    return any(names_window(line.partition("#")[0]) for line in source.splitlines())


def mask_shows(source: str) -> bool | None:
    """What a mask that is passed means by 1 or True, as a comment or docstring says it: visible; None where none does.

    >>> mask_shows("# mask: 1 = may look, 0 = hidden"), mask_shows("# True = hidden"), mask_shows("x = 1")
    (True, False, None)
    """
    said = set()
    comments = [line.partition("#")[2] for line in source.splitlines()]
    docstrings = [line for part in source.split('"""')[1::2] for line in part.splitlines()]
    for text in (*comments, *docstrings):
        if "mask" not in text.lower() and "true" not in text.lower():
            continue
        for word, meaning in ((r"\b(1|true|ones?)\b", True), (r"\b(0|false|zeros?)\b", False)):
            if re.search(rf"(?i){word}{_IS}{_SEES}", text):
                said.add(meaning)
            elif re.search(rf"(?i){word}{_IS}{_NOT}", text):
                said.add(not meaning)
    return said.pop() if len(said) == 1 else None
