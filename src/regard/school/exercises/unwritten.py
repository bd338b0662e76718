"""What a learner has not written yet: a literal `...`, found without running the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def unwritten_lines(source: str) -> list[int]:
    r"""The lines with `...` that are to be written; not those inside an index. SyntaxError if it is no Python.

    >>> unwritten_lines("scores = ...\nfirst = x[..., 0]\nprint(...)")
    [1, 3]
    """
    return sorted(set(_lines(ast.parse(source))))


def _lines(node: ast.AST) -> Iterator[int]:
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        yield node.lineno
    for child in [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node):
        yield from _lines(child)
