"""Lines of a layer that no experiment ran: a verdict that says "right" says nothing about these."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

# What need not run in a right layer: refusals, and statements that compute nothing.
_IDLE = (ast.Raise, ast.Assert, ast.Pass, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def lines_not_run(source: str, ran: Set[int]) -> str:
    r"""In words: the statements that never ran, of the functions that did; "" where all have run, or none.

    >>> lines_not_run("def f(x):\n    if x is None:\n        return 0\n    return x", {2, 4})
    'line 3 never ran'
    """
    try:
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return ""
    missing: set[int] = set()
    for function in functions:
        statements = list(_statements(function.body))
        if any(_has_run(one, ran) for one in statements):
            missing |= {one.lineno for one in statements if not _has_run(one, ran)}
    if not missing:
        return ""
    return f"{'line' if len(missing) == 1 else 'lines'} {_ranges(sorted(missing))} never ran"


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that compute something, also those inside others; not those of functions inside."""
    for one in body:
        says_only = isinstance(one, ast.Expr) and (isinstance(one.value, ast.Constant) or _prints(one.value))
        if says_only or isinstance(one, (*_IDLE, *_DEFINITIONS)):
            continue
        inside = [part for name in ("body", "orelse", "finalbody") for part in getattr(one, name, ())]
        inside += [part for handler in getattr(one, "handlers", ()) for part in handler.body]
        if not inside:
            yield one
        yield from _statements(inside)


def _prints(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"


def _has_run(one: ast.stmt, ran: Set[int]) -> bool:
    return not ran.isdisjoint(range(one.lineno, (one.end_lineno or one.lineno) + 1))


def _ranges(lines: list[int]) -> str:
    """Numbers as text; those that follow one another as a range: 3–5, 9."""
    starts = [line for line in lines if line - 1 not in lines]
    ends = [line for line in lines if line + 1 not in lines]
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))
