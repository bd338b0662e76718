"""Run a learner's file statement by statement: one that fails is skipped, so that all definitions are there.

A demonstration at the bottom that needs data, a package that is missing, sys.exit() or a training loop must not keep a
class from being checked. What no definition needs gets little time.
"""

from __future__ import annotations
import __future__ as future

import ast
import builtins
import dis
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, FrameType, ModuleType
from typing import Any, TypedDict

from regard.school.sandbox.source_text import notebook_cells
from regard.school.sandbox.stand_ins import STAND_IN, Quiet, Unavailable, stand_in

SPARE_SECONDS = 2.0  # for all statements together that no definition needs
_WAIT, _MOST_WAITS = 0.25, 40  # seconds that an import gets beyond these, again and again
_LONGEST = 1000  # characters of a message
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_ANYTHING = ("exec", "eval", "setattr", "globals", "vars")  # functions that may define what cannot be seen
_MAGIC = "run_cell_magic"  # of an exported notebook: the text of a cell
_SYNTAX_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


class SkippedStatement(TypedDict):
    """A statement that failed: its line, the exception, and the class or function that it would have defined."""

    line: int
    type: str
    message: str
    defines: str


class Stopped(BaseException):
    """A statement that no definition needs ran for too long."""


def run_statements(
    source: str, file: str, module: ModuleType, spare_seconds: float = SPARE_SECONDS, imported: bool = False
) -> list[SkippedStatement]:
    """Run a file's text in a module. Returns the statements that were skipped, in order.

    Of a file that another one imports, all names are needed, not only those that its definitions read.
    """
    namespace = vars(module)
    namespace.setdefault("get_ipython", Quiet())
    namespace.setdefault("display", Quiet())
    nodes, skipped = parse(source, file)
    codes = [_compiled(node, file, _future_flags(nodes)) for node in nodes]
    used, left = needed(nodes, codes, imported), spare_seconds
    for number, (node, code) in enumerate(zip(nodes, codes, strict=True)):
        begin = time.monotonic()
        try:
            if isinstance(code, Exception):
                raise code
            if number in used:
                exec(code, namespace)
            elif left > 0:
                with time_limit(left):
                    exec(code, namespace)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            skipped.append(describe_skipped(error, node, file))
            _stand_in(node, nodes, codes, namespace, error, skipped[-1])
        if number not in used:
            left -= time.monotonic() - begin
    return skipped


def parse(source: str, file: str) -> tuple[list[ast.stmt], list[SkippedStatement]]:
    """The statements of a text. Of a notebook, a cell with an error of syntax is skipped; of a file, everything is."""
    nodes: list[ast.stmt] = []
    skipped: list[SkippedStatement] = []
    for before, text in notebook_cells(source):
        try:
            nodes += ast.parse("\n" * before + text, file).body
        except _SYNTAX_ERRORS as error:
            skipped.append(describe_skipped(error, None, file))
    return [one for node in nodes for one in _with_cell(node)], skipped


def _with_cell(node: ast.stmt) -> list[ast.stmt]:
    """The statements of a cell that an export wrote as a text, get_ipython().run_cell_magic("time", "", …)."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == _MAGIC):
        return [node]
    magic, text = (one.value if isinstance(one, ast.Constant) else None for one in (call.args[0], call.args[-1]))
    if magic not in ("time", "timeit", "capture", "prun") or not isinstance(text, str):
        return [node]
    with suppress(*_SYNTAX_ERRORS):
        inside = ast.parse(text)
        for one in ast.walk(inside):
            if hasattr(one, "lineno"):
                ast.copy_location(one, node)
        return inside.body
    return [node]


def _future_flags(nodes: Sequence[ast.stmt]) -> int:
    froms = [one for one in nodes if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    features = (getattr(future, alias.name, None) for one in froms for alias in one.names)
    return sum({one.compiler_flag for one in features if one is not None})


def _compiled(node: ast.stmt, file: str, flags: int) -> CodeType | Exception:
    try:
        code: CodeType = compile(ast.Module([node], []), file, "exec", flags, dont_inherit=True)
        return code
    except _SYNTAX_ERRORS as error:  # return outside of a function, say
        return error


def needed(nodes: Sequence[ast.stmt], codes: Sequence[CodeType | Exception], all_names: bool = False) -> set[int]:
    """The numbers of the statements that definitions need: they define, or change a name that a definition reads."""
    modules = {name for one in nodes if isinstance(one, _IMPORTS) for name in bound_names(one)}
    changed = [bound_names(one) | _changed_names(one, modules) for one in nodes]
    names: set[str] = set()
    used: set[int] = set()
    binding = (ast.Assign, ast.AnnAssign, ast.AugAssign, *_IMPORTS) if all_names else ()
    fresh = {number for number, node in enumerate(nodes) if _defines(node) or isinstance(node, binding)}
    while fresh:
        used |= fresh
        for number in fresh:
            code = codes[number]
            names |= changed[number] | (read_names(code) if isinstance(code, CodeType) else set())
        fresh = {i for i in range(len(nodes)) if i not in used and (changed[i] & names or "*" in changed[i])}
    return used


def _defines(node: ast.stmt) -> bool:
    """Is it, or does it hold, a class, a function or a lambda; or may it define anything?"""
    if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Lambda):
        return True
    return any(
        isinstance(one, _DEFINITIONS)
        or (isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in _ANYTHING)
        for one in ast.walk(node)
    )


def bound_names(node: ast.stmt) -> set[str]:
    """The names that a statement binds; "*" for those of an import that does not say them."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, _IMPORTS):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    inside = list(ast.walk(node))
    bound = {one.id for one in inside if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    return bound.union(*(bound_names(one) for one in inside if isinstance(one, _IMPORTS)))


def _changed_names(node: ast.stmt, modules: set[str]) -> set[str]:
    """The names whose values a statement changes: Layer.forward = f, table[3] = 7, table.append(7)."""
    if isinstance(node, _DEFINITIONS):
        return set()
    changed = set()
    for one in ast.walk(node):
        if isinstance(one, (ast.Attribute, ast.Subscript)) and isinstance(one.ctx, ast.Store):
            changed.add(_root(one))
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            root = _root(one.value.func)
            changed |= {root} if one is node or root not in modules else set()
    return changed - {""}


def _root(node: ast.expr) -> str:
    """x of x.a[3].b; "" for a call of a plain name, and for what is no name."""
    inner = node
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) and inner is not node else ""


def read_names(code: CodeType) -> set[str]:
    """The names of the module that code reads, also inside of functions."""
    names = {str(one.argval) for one in dis.get_instructions(code) if one.opname in ("LOAD_NAME", "LOAD_GLOBAL")}
    return names.union(*(read_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _stand_in(
    node: ast.stmt,
    nodes: Sequence[ast.stmt],
    codes: Sequence[CodeType | Exception],
    names: dict[str, Any],
    error: BaseException,
    skipped: SkippedStatement,
) -> None:
    """Put stand-ins for the names that a statement did not bind."""
    missing = bound_names(node)
    if "*" in missing:  # it may be any name that is read and that nothing else binds
        read = set[str]().union(*(read_names(code) for code in codes if isinstance(code, CodeType)))
        known = set[str]().union(*(bound_names(one) for one in nodes))
        missing = {name for name in read - known if not hasattr(builtins, name)}
    why = skipped["message"]
    if isinstance(error, ModuleNotFoundError) and error.name:
        why = f"{error.name.split('.')[0]}, which is not installed here"
    elif skipped["type"] != Unavailable.__name__:
        why = f"%s, and line {skipped['line']} fails here: {skipped['type']}: {why}".rstrip(": ")
    for name in missing - names.keys():
        names[name] = stand_in(why.replace("%s", name, 1))


def describe_skipped(error: BaseException, node: ast.stmt | None, file: str) -> SkippedStatement:
    """An exception of a statement: with the line of the statement; of a definition, with the last line in it."""
    kind, message, line = type(error).__name__, "its message could not be read", node.lineno if node else 0
    with suppress(Exception):  # its __str__ is the learner's
        message = (error.msg if isinstance(error, SyntaxError) else str(error)) or ""
    if isinstance(error, SyntaxError):
        line = error.lineno or line
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        is_of_statement = isinstance(node, _DEFINITIONS) or code.co_name == "<module>"
        line = trace.tb_lineno if code.co_filename == file and is_of_statement else line
        trace = trace.tb_next
    first = message.splitlines()[0] if message else ""
    if named := STAND_IN.search(message):  # torch raises errors of its own
        kind, first = Unavailable.__name__, named[1]
    defines = node.name if isinstance(node, _DEFINITIONS) else ""
    return {"line": line, "type": kind[:200], "message": first[:_LONGEST], "defines": defines[:200]}


def _imports(frame: FrameType | None) -> bool:
    """Is a package being imported, here or in a caller?"""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Stopped in a block that takes longer; only in the main thread, and where there are such signals."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    waits = iter(range(_MOST_WAITS))

    def stop(number: int, frame: FrameType | None) -> None:
        if _imports(frame) and next(waits, None) is not None:  # half a package would fail wherever it is used
            signal.setitimer(signal.ITIMER_REAL, _WAIT)
            return
        raise Stopped(f"no class needs it, and it took longer than {SPARE_SECONDS:g} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
