"""The code of a rung of the ladder as one would write it on a board: without checks, helpers, steps and types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import singledispatch
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
    place = _Places(source.encode())  # a syntax tree counts bytes
    edits = sorted(edit for node in ast.walk(ast.parse(source)) for edit in _edits(node, place))
    outside = [one for one in edits if not any(a <= one[0] and one[1] <= b and (a, b) != one[:2] for a, b, _ in edits)]
    parts, at = [], 0
    for start, end, new in outside:
        parts += [place.text[at:start].decode(), new]
        at = end
    plain = "".join([*parts, place.text[at:].decode()])
    return re.sub(r"\n{4,}", "\n\n\n", re.sub(r"[ \t]+\n", "\n", plain)).strip() + "\n"


class _Places:
    """Where the nodes of a syntax tree are in a text."""

    def __init__(self, text: bytes) -> None:
        self.text, self.starts = text, [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def of(self, node: ast.AST) -> tuple[int, int]:
        """From where to where it is."""
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def lines_of(self, node: ast.AST) -> tuple[int, int]:
        """The same for all of its lines, to the beginning of the next."""
        return self.starts[node.lineno - 1], self.starts[node.end_lineno]  # type: ignore[attr-defined]


@singledispatch
def _edits(node: ast.AST, place: _Places) -> Iterator[Edit]:
    """What is left out of a node, or put in its place."""
    yield from ()


@_edits.register
def _of_statement(node: ast.Expr, place: _Places) -> Iterator[Edit]:
    """Checks, and steps that only name what was there before."""
    if isinstance(node.value, ast.Call):
        call = node.value
        only_named = _called(call) == "step" and isinstance(call.args[1], ast.Name)
        if only_named or _called(call).startswith("check_"):
            yield *place.lines_of(node), ""


@_edits.register
def _of_call(node: ast.Call, place: _Places) -> Iterator[Edit]:
    """Of a step, what it computes."""
    if _called(node) == "step":
        start, end = place.of(node.args[1])
        inner = place.text[start:end].decode()
        yield *place.of(node), plain_code(inner).strip() if "step(" in inner else inner


@_edits.register
def _of_value(node: ast.AnnAssign, place: _Places) -> Iterator[Edit]:
    """The type of a value; all of it where there is no value."""
    if node.value is None:
        yield *place.lines_of(node), ""
    else:
        yield place.of(node.target)[1], place.of(node.value)[0], " = "


@_edits.register
def _of_argument(node: ast.arg, place: _Places) -> Iterator[Edit]:
    """The type of an argument."""
    if node.annotation is not None:
        end = place.of(node.annotation)[1]
        has_default = place.text[end : end + 3] == b" = "
        yield place.of(node)[0] + len(node.arg.encode()), end + 3 * has_default, "=" * has_default


@_edits.register
def _of_import(node: ast.ImportFrom, place: _Places) -> Iterator[Edit]:
    """Helpers and types."""
    names = [one.name for one in node.names if one.name != "Tensor"]
    if node.module in _HELPERS or not names:
        yield *place.lines_of(node), ""
    elif len(names) < len(node.names):
        yield *place.of(node), f"from {node.module} import {', '.join(names)}"


@_edits.register(ast.FunctionDef)
@_edits.register(ast.ClassDef)
def _of_definition(node: ast.FunctionDef | ast.ClassDef, place: _Places) -> Iterator[Edit]:
    """The docstring with the empty lines below it, decorators, and the type of what it returns."""
    for one in node.decorator_list:
        yield *place.lines_of(one), ""
    if ast.get_docstring(node) is not None and len(node.body) > 1:
        start, end = place.lines_of(node.body[0])
        rest = place.text[end:]
        yield start, end + len(rest) - len(rest.lstrip(b"\n")), ""
    returned = getattr(node, "returns", None)
    if returned is not None:
        start, end = place.of(returned)
        yield start - len(" -> "), end, ""


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""
