"""Config reads: which fields of a configuration a learner's file reads, by its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_OF_ARRAYS = ("T", "mT", "shape", "ndim", "dtype", "astype", "reshape", "transpose", "copy_", "detach")
_METHODS = (*_OF_ARRAYS, "get", "items", "keys", "values", "copy", "update", "to_dict", "pop", "setdefault")


def config_reads(source: str, name: str) -> dict[str, bool]:
    """The fields that are read of an argument of this name, or of self.NAME; False where a default is given with it.

    >>> config_reads("a = cfg.dim, cfg['model']['heads'], getattr(cfg, 'bias', False), self.cfg.dim", "cfg")
    {'dim': True, 'model.heads': True, 'bias': False}
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    names = {name, *_aliases(tree, name)}
    reads: dict[str, bool] = {}
    for path, is_required in _reads(tree, names):
        reads[path] = reads.get(path, False) or is_required
    longest = [path for path in reads if not any(other.startswith(f"{path}.") for other in reads)]
    return {path: reads[path] for path in longest}


def _aliases(tree: ast.AST, name: str) -> Iterator[str]:
    """Other names that the argument is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == name:
            for target in node.targets:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    yield target.id if isinstance(target, ast.Name) else target.attr


def _reads(tree: ast.AST, names: set[str]) -> Iterator[tuple[str, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            if (path := _path(node, names)) and path[-1] not in _METHODS:
                yield ".".join(path), True
        elif isinstance(node, ast.Call) and node.args:
            owner, key, is_required = _asked(node)
            path = None if owner is None else _path(owner, names)
            if path is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield ".".join([*path, key.value]), is_required


def _asked(call: ast.Call) -> tuple[ast.AST | None, ast.AST | None, bool]:
    """Of getattr(owner, key) and owner.get(key): the owner, the key, and whether the field must be there."""
    function, arguments = call.func, call.args
    if isinstance(function, ast.Attribute) and function.attr in ("get", "pop"):
        return function.value, arguments[0], False
    if isinstance(function, ast.Name) and function.id in ("getattr", "hasattr") and len(arguments) > 1:
        return arguments[0], arguments[1], function.id == "getattr" and len(arguments) == 2
    return None, None, False


def _path(node: ast.AST, names: set[str]) -> list[str] | None:
    """The fields from a configuration to here; [] for the configuration itself, None for what is none."""
    if isinstance(node, ast.Name):
        return [] if node.id in names else None
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return [] if node.attr in names else None
        inner, field = _path(node.value, names), node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if not isinstance(node.slice.value, str):
            return None
        inner, field = _path(node.value, names), node.slice.value
    else:
        return None
    return None if inner is None else [*inner, field]
