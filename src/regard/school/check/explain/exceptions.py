"""Exceptions: what one in a learner's code means, and the mistake behind it where that can be shown."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches

from regard.school.check.compare.constructor_arguments import CONTEXT, ProbeSizes, takes
from regard.school.check.compare.experiment import WRONG_SHAPE, Attempt, experiment
from regard.school.check.explain.mistake_lines import nodes
from regard.school.check.explain.outputs import explain_output
from regard.school.check.explain.shapes import explain_shapes
from regard.school.check.learner_code.protocol import Failure
from regard.school.check.learner_code.subject import Subject
from regard.school.check.verdict import Finding, known

_SHAPES = ("shape", "size", "dimension", "expand", "must match", "broadcast", "core dimension", "aligned")
# Fields of the sizes that people write as numbers: what they are called, and the largest number that anybody writes.
_FIELDS = {
    "head_dim": ("head_dim", 256),
    "num_heads": ("num_heads", 64),  # a layer of 512 heads takes long to build
    "T": ("the number of tokens", 1024),
    "B": ("the batch size", 256),
    "width": ("the width", 1024),
    "d_in": ("the width of x", 4096),
    "context_length": ("context_length", 4096),
}
# What a module has before anything else is put into it, and what torch says where it is missing.
_ABOUT_INIT = r"Module\.__init__\(\) call|'_(modules|parameters|buffers|forward_hooks|backward_hooks)'"
NO_INIT = known(
    "super().__init__() missing",
    "nn.Module.__init__ makes the place where torch keeps layers and parameters.",
    "super().__init__()  # the first line of __init__",
)
NOT_CONTIGUOUS = known(
    "view of a non-contiguous tensor",
    "transpose only changes the strides; view needs memory in order, and contiguous() copies it there.",
    "concat = context.transpose(1, 2).contiguous().view(B, T, num_heads * head_dim)",
    "concat",
)
OUT_OF_MEMORY = known("out of memory")
HARD_CODED = known(
    "hard-coded sizes",
    "A layer takes its sizes from its arguments and from x, so that it works for every model and text.",
    "B, T, d_in = x.shape  # and num_heads, head_dim from self",
)
FULL_CONTEXT = known(
    "hard-coded sizes",
    "context_length is the longest text that fits; a mask of that size must be cut to the text at hand.",
    "scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)",
    "mask",
)


IMPORTS = {
    "F": "import torch.nn.functional as F",
    "nn": "from torch import nn",
    "np": "import numpy as np",
    "Tensor": "from torch import Tensor",
    "sqrt": "from math import sqrt",
    "einsum": "from torch import einsum",
    "softmax": "from torch.nn.functional import softmax",
    **{name: f"import {name}" for name in ("torch", "math", "numpy", "copy", "einops", "functools", "typing")},
    **{name: f"from einops import {name}" for name in ("rearrange", "repeat", "reduce")},
    **{name: f"from typing import {name}" for name in ("Optional", "Tuple", "List", "Dict", "Any", "Union")},
    **{name: f"from functools import {name}" for name in ("partial", "lru_cache", "reduce")},
    "dataclass": "from dataclasses import dataclass",
}
MISSING_IMPORT = known("missing import", "A name from another module is known only after an import.")
UNKNOWN_NAME = known("unknown name", "A name must be assigned before it is used, and spelled the same.")
UNKNOWN_ATTRIBUTE = known(
    "unknown attribute", "forward can use only what __init__ has put into self, under the same name."
)
ARGUMENTS = known("wrong number of arguments", "A call gives what the def asks for: count them, self aside.")
DEVICE = known(
    "hard-coded device",
    "A layer runs where its input is: with .cuda() in it, it fails on every computer without a GPU, and with several.",
    "mask = torch.ones(T, T, device=x.device)  # what is made in forward goes where x is",
)
_NOT_INIT = ("_init_", "__init", "init__", "_init__", "__init_", "__int__", "init", "__init___", "__ini__")
# Crashes that no argument of a call can be the reason of.
WHATEVER_IS_PASSED = (MISSING_IMPORT.name, UNKNOWN_NAME.name, UNKNOWN_ATTRIBUTE.name, DEVICE.name)


def explain_crash(attempt: Attempt) -> Finding:
    """What an exception means, in the learner's terms; without a name where it may be the fault of the check's call."""
    failed = attempt.failed
    assert failed is not None
    if failed.type == WRONG_SHAPE:
        return explain_output(attempt)
    message = failed.message.strip().split("\n")[0].rstrip(". ")
    for types, pattern, explain in _RULES:
        match = re.search(pattern, failed.message) if failed.type in types or not types else None
        if match and (finding := explain(attempt, failed, match)):
            return finding
    where = f" in {failed.function}" if failed.function else ""
    return Finding("", f"It fails{where}: {failed.type}: {message}.", line=failed.line)


def _no_init(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding:
    says = f"{attempt.subject.described['name']}.__init__ uses the module before super().__init__() was called."
    return NO_INIT.found(says, _init_line(attempt.subject.source, failed.line))


def _not_contiguous(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding:
    says = "view() is called on a tensor that was transposed: its memory is not in the order that view needs."
    return NOT_CONTIGUOUS.found(says, failed.line)


def _memory(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding:
    return OUT_OF_MEMORY.found("It needs more memory than it may have.", failed.line)


def _name(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    """A name that is not there: an import that is missing, or a name like it."""
    name, source = match[1], attempt.subject.source
    if not failed.line:
        return None
    if name in IMPORTS:
        return MISSING_IMPORT.found(f"{name} is used, and never imported.", failed.line, fix=IMPORTS[name])
    says = f"{name} has no value here, in {failed.function}."
    like = f" There is self.{name}: is that meant?" if name in _attributes(source) else ""
    return UNKNOWN_NAME.found(says + (like or _like(name, _variables(source, failed.line) - {name})), failed.line)


def missing_import(type_: str, message: str, line: int) -> Finding | None:
    """The finding on a name that is used while a file is imported, and never imported itself."""
    match = re.search(r"name '(\w+)' is not defined", message) if type_ == "NameError" else None
    if match is None or match[1] not in IMPORTS:
        return None
    return MISSING_IMPORT.found(f"{match[1]} is used, and never imported.", line, fix=IMPORTS[match[1]])


def _attribute(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    """An attribute of the learner's own class that nothing has put there."""
    if match[1] not in {node.name for node in nodes(attempt.subject.source, ast.ClassDef)}:
        return None
    source = attempt.subject.source
    methods = {node.name for node in nodes(source, ast.FunctionDef)}
    says = f"self.{match[2]} is used, and {match[1]} has no such attribute."
    if misspelt := [one for one in methods if one in _NOT_INIT and "__init__" not in methods]:
        return UNKNOWN_ATTRIBUTE.found(f"{says} {misspelt[0]} is never called: its name is __init__.", failed.line)
    like = _like(match[2], {*_attributes(source), *methods} - {match[2]}, "self.")
    return UNKNOWN_ATTRIBUTE.found(says + like, failed.line)


def _attributes(source: str) -> set[str]:
    """What a text puts into self."""
    return {
        node.attr
        for node in nodes(source, ast.Attribute)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def _like(name: str, names: Iterable[str], before: str = "") -> str:
    """The name that is most like it, in a sentence."""
    near = get_close_matches(name, sorted(names), 1, 0.6)
    return f" There is {before}{near[0]}: is that meant?" if near else ""


def _variables(source: str, line: int) -> set[str]:
    """The names that are assigned in the function that a line belongs to, and its arguments."""
    functions = [one for one in nodes(source, ast.FunctionDef) if one.lineno <= line <= (one.end_lineno or 0)]
    names = set()
    for node in (node for one in functions[-1:] for node in ast.walk(one)):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _arguments(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    """A call in the learner's own code; forward itself is called by the check."""
    functions = {node.name for node in nodes(attempt.subject.source, ast.FunctionDef)}
    if not failed.line or match[1].rpartition(".")[2] not in functions or failed.function == match[1]:
        return None
    return ARGUMENTS.found(f"{failed.message.strip().rstrip('.')}.", failed.line)


def _no_self(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    """forward without self, so that x is taken for it."""
    method = match[1].rpartition(".")[2]
    own = [one for one in nodes(attempt.subject.source, ast.FunctionDef) if one.name == method and one.col_offset]
    if len(own) != 1 or own[0].decorator_list or [a.arg for a in own[0].args.args][:1] not in ([], ["x"]):
        return None
    says = f"The first argument of {method} is self, and it is missing: def {method}(self, x)."
    return ARGUMENTS.found(says, own[0].lineno)


def _no_forward(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    """A module whose forward is spelled in another way."""
    methods = {one.name: one.lineno for one in nodes(attempt.subject.source, ast.FunctionDef) if one.col_offset}
    near = get_close_matches("forward", sorted(methods), 1, 0.7)
    if not near or near[0] == "forward":
        return None
    says = f"{match[1]} has no method forward. There is {near[0]}: is forward meant?"
    return UNKNOWN_NAME.found(says, methods[near[0]])


def _device(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    line = _code(attempt.subject.source, failed.line)
    if "cuda" not in line and "device" not in line:
        return None
    return DEVICE.found("A tensor is put on a GPU, wherever x is; here, x is on the CPU.", failed.line)


def _shape(attempt: Attempt, failed: Failure, match: re.Match[str]) -> Finding | None:
    if finding := explain_shapes(failed, attempt.subject.source):
        if finding.name:
            return finding
        return _hard_coded(attempt, failed.line) or finding
    return _hard_coded(attempt, failed.line)


Rule = Callable[[Attempt, Failure, "re.Match[str]"], "Finding | None"]
_FAULTS = ("RuntimeError", "ValueError", "IndexError", "AssertionError")
# Types of exceptions, a pattern of their message, and what it means; the first that has something to say.
_RULES: tuple[tuple[tuple[str, ...], str, Rule], ...] = (
    (("AttributeError",), _ABOUT_INIT, _no_init),
    ((), "view size is not compatible", _not_contiguous),
    (("MemoryError",), "", _memory),
    ((), "DefaultCPUAllocator", _memory),
    (("NameError", "UnboundLocalError"), r"(?:name|variable) '(\w+)'", _name),
    (("AttributeError",), r"'(\w+)' object has no attribute '(\w+)'", _attribute),
    (("TypeError",), r"([\w.]+)\(\) takes \d+ positional arguments? but", _no_self),
    (("NotImplementedError",), r'Module \[(\w+)\] is missing the required "forward"', _no_forward),
    (("TypeError",), r"([\w.]+)\(\) (?:takes|missing|got an unexpected)", _arguments),
    ((*_FAULTS, "AcceleratorError"), r"CUDA|NVIDIA|same device|cuda", _device),
    (("RuntimeError", "ValueError", "IndexError"), "|".join(_SHAPES), _shape),
)


def _code(source: str, line: int) -> str:
    lines = source.splitlines()
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _init_line(source: str, line: int) -> int:
    """The line of the `def __init__` that a line belongs to."""
    lines = source.splitlines()[:line]
    return next((i for i in range(len(lines), 0, -1) if "def __init__" in lines[i - 1]), line)


def _hard_coded(attempt: Attempt, failing: int) -> Finding | None:
    """A number in the code that is a size: shown by building the layer so that the number fits, where it then runs."""
    subject, sizes = attempt.subject, attempt.sizes

    def runs(sizes: ProbeSizes) -> bool:
        return experiment(subject, sizes, 0, attempt.request, most=1).is_explained

    if subject.is_built:
        return None
    full = replace(sizes, T=sizes.context_length)
    if takes(subject.described, CONTEXT) and runs(full):
        says = f"It runs only for texts of exactly context_length = {full.T} tokens; here one has {sizes.T}."
        return FULL_CONTEXT.found(says, failing)
    lines = subject.source.splitlines()
    for number, line in _numbers(subject.source, subject.described["name"]):
        for field, (word, largest) in _FIELDS.items():
            changed = _with_size(subject, sizes, field, number)
            if number <= largest and changed != sizes and runs(changed):
                says = f"It runs only where {word} is {number}: that number is written in the code."
                stands_there = 0 < failing <= len(lines) and str(number) in lines[failing - 1]
                return HARD_CODED.found(says, failing if stands_there else line)
    return None


def _with_size(subject: Subject, sizes: ProbeSizes, field: str, number: int) -> ProbeSizes:
    """The sizes with this number for one of them; as they are where it cannot be that."""
    if field == "context_length" and not takes(subject.described, ("context_length",)):
        return sizes
    if field == "width":
        heads = next((h for h in (sizes.num_heads, 4, 2) if number % h == 0), None)
        changed = sizes if heads is None else replace(sizes, num_heads=heads, head_dim=number // heads)
    else:
        changed = replace(sizes, **{field: number})
    return replace(changed, context_length=max(changed.context_length, changed.T))


def _numbers(source: str, name: str) -> Iterator[tuple[int, int]]:
    """Whole numbers above 3 in the body of a class, and of constants that it names, each with its line."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    seen = set()
    bodies = [one for one in ast.walk(tree) if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == name]
    inside = [node for body in bodies for node in ast.walk(body)]
    used = {node.id for node in inside if isinstance(node, ast.Name)}
    constants = [one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in used]
    for node in (node for node in (*inside, *constants) if isinstance(node, ast.Constant)):
        if type(node.value) is int and node.value > 3 and node.value not in seen:
            seen.add(node.value)
            yield node.value, node.lineno
