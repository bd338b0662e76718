"""The code of a rung of the ladder as one would write it on a board: without checks, helpers, names of steps and types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

RUNGS = ("simplified", "self_attention", "causal", "multi_head")
_HELPERS = ("regard.steps", "regard.support.arguments", "jaxtyping", "__future__")
Edit = tuple[int, int, str]  # from, to, and what stands there instead


def rung_code(number: int) -> str:
    """The plain code of rung 1 to 4."""
    import regard.ladder

    file = Path(regard.ladder.__file__).with_name(f"{RUNGS[number - 1]}.py")
    source = file.read_text(encoding="utf-8")
    guide = re.sub(r"\n\nHow to read these files:.*?(?=\n\n|\n?\"\"\")", "", source, count=1, flags=re.DOTALL)
    return plain_code(guide)


def plain_code(source: str) -> str:
    r"""The code without what stands between a reader and the formula.

    >>> code = 'def f(x: Tensor, n: int = 3) -> Tensor:\n    check_width(x, n)\n    return step("double", 2 * x)\n'
    >>> print(plain_code(code), end="")
    def f(x, n=3):
        return 2 * x
    """
    text = source.encode()  # the places in a syntax tree count bytes
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    edits = sorted(_edits(ast.parse(source), text, lines))
    outside = [one for one in edits if not any(a <= one[0] and one[1] <= b and (a, b) != one[:2] for a, b, _ in edits)]
    parts, at = [], 0
    for start, end, new in outside:
        parts += [text[at:start].decode(), new]
        at = end
    plain = "".join([*parts, text[at:].decode()])
    return re.sub(r"\n{4,}", "\n\n\n", re.sub(r"[ \t]+\n", "\n", plain)).strip() + "\n"


def _edits(tree: ast.AST, text: bytes, lines: list[int]) -> Iterator[Edit]:
    def place(node: ast.AST) -> tuple[int, int]:
        start = lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def whole_lines(node: ast.AST) -> tuple[int, int]:
        return lines[node.lineno - 1], lines[node.end_lineno]  # type: ignore[attr-defined]

    for node in ast.walk(tree):
        if _is_dropped(node):
            yield *whole_lines(node), ""
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield place(node.target)[1], place(node.value)[0], " = "
        elif isinstance(node, ast.Call) and _called(node) == "step":
            start, end = place(node.args[1])
            yield *place(node), plain_expression(text[start:end].decode())
        elif isinstance(node, ast.arg) and node.annotation is not None:
            end = place(node.annotation)[1]
            has_default = text[end : end + 3] == b" = "
            yield place(node)[0] + len(node.arg.encode()), end + 3 * has_default, "=" * has_default
        elif isinstance(node, ast.ImportFrom) and node.module == "torch":
            names = ", ".join(one.name for one in node.names if one.name != "Tensor")
            yield (*place(node), f"from torch import {names}") if names else (*whole_lines(node), "")
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from _of_definition(node, text, lines)
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            start, end = place(node.returns)
            yield start - len(" -> "), end, ""


def _of_definition(node: ast.FunctionDef | ast.ClassDef, text: bytes, lines: list[int]) -> Iterator[Edit]:
    """Its docstring and its decorators."""
    for one in node.decorator_list:
        yield lines[one.lineno - 1], lines[one.end_lineno or 0], ""
    if ast.get_docstring(node) is not None and len(node.body) > 1:
        first, then = node.body[:2]
        yield lines[first.lineno - 1], lines[_first_line(then, lines, text, first) - 1], ""


def _first_line(then: ast.stmt, lines: list[int], text: bytes, before: ast.stmt) -> int:
    """The line after a docstring; an empty one goes with it."""
    end = before.end_lineno or before.lineno
    while end + 1 < then.lineno and not text[lines[end] : lines[end + 1]].strip():
        end += 1
    return end + 1


def _is_dropped(node: ast.AST) -> bool:
    """Statements that a reader of the formula does not need."""
    if isinstance(node, ast.ImportFrom):
        return node.module in _HELPERS
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    is_named = _called(call) == "step" and isinstance(call.args[1], ast.Name)  # nothing is computed there
    return is_named or _called(call).startswith("check_")


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def plain_expression(text: str) -> str:
    """An expression in which no step has a name: `step("x", x).shape` is `x.shape`."""
    return plain_code(text).strip() if "step(" in text else text
