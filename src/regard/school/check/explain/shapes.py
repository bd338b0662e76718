"""Shapes: which tensors of a failing line do not fit, with the learner's names, and the mistake that this shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regard.school.check.explain.mistake_lines import nodes
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.verdict import Finding, known

NOT_TRANSPOSED = known(
    "keys not transposed",
    "A score is the product of a query and a key: (T, D) @ (D, T), so the last two axes of the keys are "
    "exchanged first.",
    "scores = queries @ keys.transpose(-2, -1)",
    "scores",
)
WRONG_AXES = known(
    "keys transposed on the wrong axes",
    "Texts and heads keep their places; .T reverses all axes, and only the last two are to be exchanged.",
    "scores = queries @ keys.transpose(-2, -1)",
    "scores",
)
HEADS_BEHIND = known(
    "split without transpose",
    "Matrix products work on the last two axes: those must be tokens and head_dim, which needs transpose(1, 2).",
    "values = values.view(B, T, num_heads, head_dim).transpose(1, 2)",
    "split",
)
WIDTH = known(
    "linear layer of another width",
    "nn.Linear(in, out) reads vectors of exactly so many numbers as it was built for.",
)
_PRODUCTS = ("matmul", "bmm", "mm", "dot", "baddbmm")
_TURNED = ("transpose", "permute", "swapaxes", "swapdims", "movedim", "T", "t", "mT")
_SIGNS = {ast.Add: "+", ast.Sub: "−", ast.Mult: "·", ast.Div: "/", ast.MatMult: "@"}
# A docstring or comment that speaks of (T, d): one text at a time.
_SAYS_TWO_AXES = re.compile(r"(?i)(#|:|->|→|\"\"\").*\(\s*\w+\s*,\s*\w+\s*\)").search
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """A part of an expression: as it is written, the shape of the tensor in it, and whether its axes are exchanged."""

    text: str
    base: Shape  # of the variable in it
    shape: Shape  # after its axes are exchanged
    is_turned: bool = False
    is_argument: bool = False  # of the function that failed: its shape is what the check chose

    def __str__(self) -> str:
        return f"{self.text} of {self.shape}"


def explain_shapes(failed: Failure, source: str) -> Finding | None:
    """Which two tensors of the failing line do not fit; None where the line does not name them.

    It has a name only where one exchange of axes makes them fit: other shapes may be those that the check has chosen.
    """
    for sign, left, right in _operations(source, failed):
        is_own = not (left.is_argument or right.is_argument)
        if sign != "@":
            if is_own and not _broadcast(left.shape, right.shape):
                return Finding("", f"{left} {sign} {right}: their axes are not alike.", line=failed.line)
            continue
        if _fits_transposed(left, right):
            if right.text.endswith(".T") and _SAYS_TWO_AXES(source) and len(right.base) > 2:
                return None  # it is right for one text, and the check passed more
            known_as = WRONG_AXES if right.is_turned else NOT_TRANSPOSED
            wrong = "other axes are exchanged" if right.is_turned else "they are not exchanged"
            says = f"{left} @ {right}: that fits where the last two axes of {_base(right.text)} are exchanged; {wrong}."
            return known_as.found(says, failed.line)
        inner = right.shape[max(-2, -len(right.shape))]
        if is_own and _fits_with_heads_in_front(left, right):
            says = f"{left} @ {right}: in {right.text} the heads still stand behind the tokens."
            return HEADS_BEHIND.found(says, failed.line)
        if is_own and left.shape[-1] != inner:
            says = f"{left} @ {right}: {left.shape[-1]} and {inner} must be the same number."
            return Finding("", says, line=failed.line)
    return _of_a_linear(failed, source)


def _of_a_linear(failed: Failure, source: str) -> Finding | None:
    """A linear layer of the learner's that reads another width than that of what forward has made for it."""
    match = re.search(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", failed.message)
    arguments = _arguments(source, failed.line)
    for node in _nodes_of_line(source, failed.line) if match else ():
        if not isinstance(node, ast.Call) or len(node.args) != 1 or not ast.unparse(node.func).startswith("self."):
            continue
        given = ast.unparse(node.args[0])
        if match and given not in arguments and failed.shapes.get(given, [0])[-1] == int(match[1]):
            says = f"{given} has vectors of {match[1]} numbers, and {ast.unparse(node.func)} reads {match[2]}."
            return WIDTH.found(says, failed.line)
    return None


def _arguments(source: str, line: int) -> set[str]:
    """The arguments of the function that a line belongs to: their shapes are what the check chose."""
    functions = [one for one in nodes(source, ast.FunctionDef) if one.lineno <= line <= (one.end_lineno or 0)]
    return {one.arg for function in functions[-1:] for one in function.args.args}


def _fits_transposed(left: Operand, right: Operand) -> bool:
    """Are both (…, tokens, numbers), alike but for the number of tokens, and do not fit as they are?"""
    a, b = left.shape, right.base
    fits = right.shape[:-2] == a[:-2] and right.shape[-2:-1] == a[-1:]
    return len(a) == len(b) > 1 and a[:-2] == b[:-2] and a[-1] == b[-1] and not fits and not left.is_turned


def _fits_with_heads_in_front(left: Operand, right: Operand) -> bool:
    """Are they weights (B, H, T, S) and values (B, S, H, D), whose heads stand behind the tokens?"""
    a, b = left.shape, right.shape
    fits = len(a) == len(b) == 4 and a[:2] == (b[0], b[2]) and a[3] == b[1]
    return fits and a[1] != a[3] and not right.is_turned


def _base(text: str) -> str:
    return text.partition(".")[0].partition("(")[0]


def _broadcast(a: Shape, b: Shape) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or 1 in (x, y) for x, y in pairs)


def _operations(source: str, failed: Failure) -> Iterator[tuple[str, Operand, Operand]]:
    """The products and sums of the failing line whose two sides are tensors with a name."""
    arguments = _arguments(source, failed.line)
    for node in _nodes_of_line(source, failed.line):
        sign, parts = _sides(node)
        sides = [_operand(part, failed.shapes, arguments) for part in parts]
        if len(sides) == 2 and sides[0] is not None and sides[1] is not None:
            yield sign, sides[0], sides[1]


def _sides(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """The sign and the two sides of a product or a sum; nothing of another node."""
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.Call) and _called(node) in _PRODUCTS:
        parts = _parts(node)
        return "@", parts[-2:] if _called(node) == "baddbmm" else parts[:2]
    return "", []


def _parts(node: ast.Call) -> list[ast.expr]:
    """What a call works on: its arguments, and the tensor whose method it is."""
    function = node.func
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    return [function.value, *node.args] if is_method and isinstance(function, ast.Attribute) else list(node.args)


def _nodes_of_line(source: str, line: int) -> list[ast.AST]:
    """The nodes of the statement that a line belongs to, the innermost first."""
    kinds = (ast.Assign, ast.Return, ast.AugAssign, ast.Expr)
    here = [
        one for kind in kinds for one in nodes(source, kind) if one.lineno <= line <= (one.end_lineno or one.lineno)
    ]
    return list(reversed(list(ast.walk(max(here, key=lambda one: one.lineno))))) if here else []


def _operand(node: ast.expr, shapes: Mapping[str, Sequence[int]], arguments: Collection[str]) -> Operand | None:
    """A variable, or one whose axes are exchanged."""
    base: ast.expr = node
    numbers: list[int] = []
    if is_turned := isinstance(node, ast.Call) and _called(node) in _TURNED:
        assert isinstance(node, ast.Call)
        parts = _parts(node)
        base = parts[0] if parts else node
        try:
            numbers = [ast.literal_eval(part) for part in parts[1:]]
        except ValueError:
            return None
    elif isinstance(node, ast.Attribute) and node.attr in _TURNED:
        base, is_turned = node.value, True
    if not isinstance(base, ast.Name) or not shapes.get(base.id):
        return None
    shape = tuple(shapes[base.id])
    turned = _turned(shape, _called(node) if isinstance(node, ast.Call) else getattr(node, "attr", ""), numbers)
    return Operand(ast.unparse(node), shape, turned if is_turned else shape, is_turned, base.id in arguments)


def _turned(shape: Shape, how: str, numbers: Sequence[int]) -> Shape:
    """A shape after its axes are exchanged: all of them, the last two, or two that are named."""
    order = list(range(len(shape)))
    if how in ("mT", "t") or (how == "T" and len(shape) == 2):
        order[-2:] = order[:-3:-1]
    elif how == "permute" and len(numbers) == len(shape):
        order = list(numbers)
    elif len(numbers) == 2 and max(map(abs, numbers)) < len(shape) + 1:
        a, b = (n % len(shape) for n in numbers)
        order[a], order[b] = order[b], order[a]
    else:
        order.reverse()
    return tuple(shape[i] for i in order)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "numpy", "F")
