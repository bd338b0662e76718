"""Similar submissions: pairs whose code has the same structure, whatever its names, numbers and comments are.

It is a hint for a person, never a verdict: short answers to one exercise look alike by themselves.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

SPAN = 12  # nodes of a syntax tree that are compared together
MOST_NODES = 20_000  # of one submission
FEWEST = 30  # spans, for a percentage to mean anything
COMMON = 10  # a span that more submissions have, and more than a tenth of them, is common knowledge


class SimilarPair(NamedTuple):
    """Two submissions and how much of their code has the same structure."""

    one: str
    other: str
    percent: int


def fingerprints(source: str) -> list[int]:
    """A number for every span of the syntax tree; none where it is no Python.

    >>> fingerprints("def f(a, b=3): return [a.mT + b for _ in range(9)]") == fingerprints(
    ...     "def g(x, y=7): return [x.mT + y for i in range(5)]  # mine")
    True
    """
    try:
        words = [word for _, word in zip(range(MOST_NODES), _words(ast.parse(source)), strict=False)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    spans = {" ".join(words[i : i + SPAN]) for i in range(len(words) - SPAN + 1)}
    return sorted(int.from_bytes(hashlib.blake2b(one.encode(), digest_size=6).digest(), "big") for one in spans)


def _words(tree: ast.AST) -> Iterator[str]:
    """The kinds of the nodes, top down; attributes of anything but self have names that nobody can choose."""
    todo = [tree]
    while todo:
        node = todo.pop()
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)  # a docstring
        if is_text or isinstance(node, (ast.expr_context, ast.alias)):
            continue
        chosen = not isinstance(node, ast.Attribute) or getattr(node.value, "id", "") == "self"
        yield type(node).__name__ if chosen else f".{node.attr}"  # type: ignore[attr-defined]
        todo += reversed(list(ast.iter_child_nodes(node)))


def find_similar(
    prints: Mapping[str, Collection[int]], percent: int, starter: Collection[int] = ()
) -> list[SimilarPair]:
    """Pairs that share so many percent of their spans or more, the most similar first. What everybody has is left out.

    >>> find_similar({"a": range(50), "b": range(5, 55), "c": range(90, 140)}, 80)
    [SimilarPair(one='a', other='b', percent=90)]
    """
    often = Counter(one for some in prints.values() for one in set(some))
    known = {one for one, times in often.items() if times > max(COMMON, len(prints) / 10)} | set(starter)
    own = {name: set(some) - known for name, some in sorted(prints.items())}
    own = {name: some for name, some in own.items() if len(some) >= FEWEST}
    pairs = []
    for (one, mine), (other, theirs) in combinations(own.items(), 2):
        share = 200 * len(mine & theirs) // (len(mine) + len(theirs))
        if share >= percent:
            pairs.append(SimilarPair(one, other, share))
    return sorted(pairs, key=lambda pair: (-pair.percent, pair.one, pair.other))
