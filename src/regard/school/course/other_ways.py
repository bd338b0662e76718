"""Another right way to write an exercise: of its file, the functions and methods that are not as in the solution."""

from __future__ import annotations

import ast
from collections.abc import Collection

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def different_code(source: str, usual: str, names: Collection[str]) -> list[str]:
    r"""The text of functions and classes of these names that the usual file writes otherwise, without docstrings.

    >>> usual = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"
    >>> print(*different_code(usual.replace("return 2", "return 1 + 1"), usual, ["A"]))
    class A:
        def g(self):
            return 1 + 1

    Of a class, methods that are the same are left out.
    """
    known = {node.name: ast.dump(_bare(node)) for node in _definitions(usual)}
    methods = {
        (node.name, one.name): ast.dump(_bare(one))
        for node in _definitions(usual)
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, Function)
    }
    lines = source.splitlines()
    result = []
    for node in _definitions(source):
        if node.name not in names or ast.dump(_bare(node)) == known.get(node.name):
            continue
        left_out = _docstrings(node)
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, Function) and ast.dump(_bare(one)) == methods.get((node.name, one.name)):
                    left_out |= _lines(one)
        text = "\n".join(lines[number - 1] for number in sorted(_lines(node) - left_out))
        while "\n\n\n" in text:
            text = text.replace("\n\n\n", "\n\n")
        result.append(text.replace(":\n\n", ":\n").rstrip())
    return result


def _definitions(source: str) -> list[ast.FunctionDef | ast.ClassDef]:
    return [node for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[int]:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return set(range(first, (node.end_lineno or first) + 1))


def _docstrings(node: ast.AST) -> set[int]:
    """The lines of all docstrings in a definition, unless nothing else is in it."""
    result: set[int] = set()
    for one in ast.walk(node):
        if isinstance(one, (*Function, ast.ClassDef)) and ast.get_docstring(one) is not None and len(one.body) > 1:
            result |= set(range(one.body[0].lineno, (one.body[0].end_lineno or 0) + 1))
    return result


def _bare(node: ast.AST) -> ast.AST:
    """The same without docstrings, which do not make it another way."""
    copy = ast.parse(ast.unparse(node)).body[0]
    for one in ast.walk(copy):
        if isinstance(one, (*Function, ast.ClassDef)) and ast.get_docstring(one) is not None and len(one.body) > 1:
            del one.body[0]
    return copy
