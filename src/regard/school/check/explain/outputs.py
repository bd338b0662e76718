"""Outputs: what is wrong with a result that has not the shape of an output, from the calls that led to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.school.check.compare.call_forms import LAYOUTS, call_forms
from regard.school.check.compare.experiment import Attempt
from regard.school.check.explain.mistake_lines import nodes, return_line
from regard.school.check.learner_code.protocol import Observation, Recorded
from regard.school.check.learner_code.subject import is_function
from regard.school.check.verdict import Finding, known

NO_RETURN = known("no return", "A function without return returns None.", "return self.out_proj(concat)", "out")
LAST_TOKEN = known(
    "last token returned",
    "Attention gives every token a context; which of them a model uses is decided outside of the layer.",
    "return self.out_proj(concat)  # all tokens, (B, T, width)",
    "out",
)
TRANSPOSED = known(
    "output transposed",
    "What comes next reads one vector per token: the numbers of a token stand in the last axis.",
    "return context  # (B, T, width)",
    "out",
)
WRONG_AXIS = known(
    "heads joined on the wrong axis",
    "Joined on the axis of the tokens, heads become more tokens; joined on the last axis, they make one "
    "wide vector each.",
    "torch.cat([head(x) for head in self.heads], dim=-1)",
    "concat",
)
NOT_JOINED = known(
    "heads not joined",
    "The output of all heads is one vector per token.",
    "context.transpose(1, 2).reshape(B, T, num_heads * head_dim)",
    "concat",
)


def explain_output(attempt: Attempt) -> Finding:
    """Why a result is no output: nothing, some tokens, other axes, or heads apart; without a name where it is none."""
    failed, name = attempt.failed, attempt.subject.described["name"]
    assert failed is not None
    forward = next(function_nodes(attempt.subject.source, name), None)
    if forward is not None and not any(isinstance(node, ast.Return) and node.value for node in ast.walk(forward)):
        return NO_RETURN.found(f"{forward.name} returns nothing.", forward.body[-1].lineno)
    seen = _recorded(attempt)
    if seen.runs and seen.runs[0].outputs:
        line = return_line(attempt.subject.source, seen.with_lines)
        return next(_of_shape(attempt, seen, seen.runs[0].outputs[0], line), Finding("", failed.message, step="out"))
    if failed.message.startswith("Without ") or (seen.runs and seen.runs[0].failed is None):
        line = forward.body[-1].lineno if forward is not None else 0
        return NO_RETURN.found(failed.message, line)
    return Finding("", failed.message, step="out")


def _recorded(attempt: Attempt) -> Observation:
    """The run once more, with its calls."""
    if is_function(attempt.subject):
        return Observation()
    way = next(call_forms(attempt.subject.described, [], LAYOUTS[:1]))
    return attempt.subject.run(attempt.job(calls=[way.as_json()], record=True), attempt.tensors)


def _of_shape(attempt: Attempt, seen: Observation, out: Tensor, line: int) -> Iterator[Finding]:
    B, T = attempt.sizes.B, attempt.sizes.T
    shape, calls = tuple(out.shape), seen.with_lines
    joined = [call for call in calls if call.name in ("cat", "concat", "concatenate", "hstack", "vstack")]
    is_longer = out.dim() == 3 and (
        (shape[0] == B and shape[1] > T and shape[1] % T == 0) or (shape[1] == T and shape[0] > B)
    )
    if joined and is_longer:
        says = f"It returns {shape} for {B} texts of {T} tokens: the heads are joined one after the other."
        yield WRONG_AXIS.found(says, joined[-1].line)
    if last := _last_token(calls, B, T):
        yield LAST_TOKEN.found(f"It returns {shape}: of {T} tokens, only the last is used.", last)
    if out.dim() == 3 and shape[0] == B and shape[2] == T:
        yield TRANSPOSED.found(f"It returns {shape}, which is (B, width, T); an output is (B, T, width).", line)
    if out.dim() == 4 and shape[0] == B and T in shape[1:3]:
        yield NOT_JOINED.found(f"It returns {shape}: the heads are still apart.", line)


def _last_token(calls: Sequence[Recorded], B: int, T: int) -> int:
    """The line at which the last token is cut out of a tensor of all tokens."""
    tokens = [call.value for call in calls if call.value.dim() == 3 and call.value.shape[:2] == (B, T)]
    for call in calls:
        value = call.value.squeeze(1) if call.value.dim() == 3 else call.value
        is_cut = call.name in ("getitem", "select", "narrow", "index_select") and value.dim() == 2
        if is_cut and any(t.shape[::2] == value.shape and torch.equal(t[:, -1], value) for t in tokens):
            return call.line
    return 0


def function_nodes(source: str, name: str) -> Iterator[ast.FunctionDef]:
    """The function of this name, or the forward of the class of this name."""
    yield from (node for node in nodes(source, ast.FunctionDef) if node.name == name)
    for one in nodes(source, ast.ClassDef):
        if one.name == name:
            yield from (n for n in one.body if isinstance(n, ast.FunctionDef) and n.name in ("forward", "__call__"))
