"""Exceptions: what one in a learner's code means, and the mistake behind it where that can be shown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from regard.school.check.compare.constructor_arguments import CONTEXT, ProbeSizes, takes
from regard.school.check.compare.experiment import WRONG_SHAPE, Attempt, experiment
from regard.school.check.learner_code.subject import Subject
from regard.school.check.verdict import Finding, known

_SHAPES = ("shape", "size", "dimension", "expand", "must match", "broadcast")
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


def explain_crash(attempt: Attempt) -> Finding:
    """What an exception means, in the learner's terms."""
    subject, failed = attempt.subject, attempt.failed
    assert failed is not None
    if failed.type == WRONG_SHAPE:
        return Finding("", failed.message, step="out")
    message = failed.message.strip().split("\n")[0].rstrip(". ")
    if failed.type == "AttributeError" and re.search(_ABOUT_INIT, failed.message):
        says = f"{subject.described['name']}.__init__ uses the module before super().__init__() was called."
        return NO_INIT.found(says, _init_line(subject.source, failed.line))
    if "view size is not compatible" in message:
        says = "view() is called on a tensor that was transposed: its memory is not in the order that view needs."
        return NOT_CONTIGUOUS.found(says, failed.line)
    if failed.type == "MemoryError" or "DefaultCPUAllocator" in message:
        return OUT_OF_MEMORY.found("It needs more memory than it may have.", failed.line)
    is_shape = failed.type in ("RuntimeError", "ValueError", "IndexError") and any(w in message for w in _SHAPES)
    if is_shape and (finding := _hard_coded(attempt, failed.line)):
        return finding
    remedy = ""
    if failed.type == "NameError" and "'F'" in message:
        remedy = " Write import torch.nn.functional as F at the top of the file."
    where = f" in {failed.function}" if failed.function else ""
    return Finding("", f"It fails{where}: {failed.type}: {message}.{remedy}", line=failed.line)


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
    """Whole numbers above 3 in the body of a class, each with its line."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    seen = set()
    bodies = (one for one in ast.walk(tree) if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == name)
    for node in (node for body in bodies for node in ast.walk(body) if isinstance(node, ast.Constant)):
        if type(node.value) is int and node.value > 3 and node.value not in seen:
            seen.add(node.value)
            yield node.value, node.lineno
