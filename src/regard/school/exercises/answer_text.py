"""What the text of an answer shows before it runs: lines not written yet, names it should not use, what it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from regard.school.check.verdict import Finding

GIVEN = "The check calls this"  # in the docstring of a function that is not the learner's


def imports_regard(source: str) -> bool:
    """Does a file import regard, or a part of it?"""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for one in nodes if isinstance(one, ast.Import) for alias in one.names]
    names += [one.module or "" for one in nodes if isinstance(one, ast.ImportFrom)]
    return any(name.partition(".")[0] == "regard" for name in names)


def not_to_be_used(source: str, without: Mapping[str, str]) -> list[Finding]:
    """The first use of a name of torch that the task asks to do without."""
    for one in ast.walk(ast.parse(source)):
        used = [one.attr] if isinstance(one, ast.Attribute) else []
        used += [alias.name for alias in one.names] if isinstance(one, ast.ImportFrom) else []
        for name in (name for name in used if name in without):
            says = f"It uses {name}, which is ready in torch. {without[name]}"
            return [Finding("ready in torch", says, line=getattr(one, "lineno", 0))]
    return []


def before_running(source: str) -> list[Finding]:
    """What keeps a file from being run: a syntax error, or lines that are not written yet."""
    try:
        lines = unwritten_lines(source)
    except SyntaxError as error:
        return [Finding("does not run", f"The file does not run: {error.msg} (SyntaxError).", line=error.lineno or 0)]
    except ValueError as error:  # a null byte, in older versions of Python
        return [Finding("does not run", f"The file does not run: {error}.")]
    if not lines:
        return []
    first, *more = map(str, lines)
    also = f", nor is line {more[0]}" if len(more) == 1 else ""
    if len(more) > 1:
        also = f", nor are lines {', '.join(more[:-1])} and {more[-1]}"
    return [Finding("not written yet", f"Line {first} is not written yet{also}.", line=lines[0])]


def unwritten_lines(source: str) -> list[int]:
    """The lines with `...` that are to be written; not those inside an index, or after a return.

    SyntaxError if it is no Python.
    """

    def lines(node: ast.AST) -> Iterator[int]:
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            yield node.lineno
        for child in [node.value] if isinstance(node, ast.Subscript) else _children(node):
            yield from lines(child)

    return sorted(set(lines(ast.parse(source))))


def values_written(source: str) -> set[str]:
    """The names that a file gives a value, at its top level, in which nothing is left to be written."""
    values = {
        target.id: one.value
        for one in ast.parse(source).body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    return {name for name, value in values.items() if not unwritten_lines(ast.unparse(value))}


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node; of a block, the statements to the first that leaves it: what follows never runs."""
    for _, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
            if isinstance(child, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                break


def only_line(source: str, name: str) -> int:
    """The line of a function that has one statement; 0 where there are more, and the mistake can be in any of them.

    Functions that "the check calls" are given, so no mistake is in them.
    """
    for one in ast.parse(source).body:
        if isinstance(one, ast.FunctionDef) and one.name == name and GIVEN not in (ast.get_docstring(one) or ""):
            body = one.body[1:] if ast.get_docstring(one) is not None else one.body
            return body[0].lineno if len(body) == 1 else 0
    return 0
