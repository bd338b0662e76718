"""Behaviours: what the values of one run cannot show, such as dropout, other sizes, fp16 and the caller's tensors.

Each function tries one thing and yields what it found. A new behaviour is a new function in BEHAVIOURS, and the names
that it gives are made by `known`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from regard.school.check.behaviours.dropout import dropout_in_training, random_in_eval
from regard.school.check.behaviours.kv_cache import cached_like_uncached
from regard.school.check.compare.call_forms import causal_mask, inputs, mask_forms, random_tensor
from regard.school.check.compare.constructor_arguments import CONTEXT, HEADS, WIDTH, ProbeSizes, has_config, takes
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with, return_line, softmax_line
from regard.school.check.learner_code.subject import is_function
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import HEAD_DIM

_IN_PLACE = ("iadd", "imul", "isub", "itruediv", "setitem", "iand", "ior")
_WHY_IN_PLACE = "Whoever calls the layer may still need that tensor: a residual connection adds the input again."
_NEW_TENSOR = "y = x + 1  # a new tensor, in place of x += 1 or x.add_(1)"
CHANGED = {
    what: known(f"in-place change of the caller's {what}", _WHY_IN_PLACE, _NEW_TENSOR) for what in ("input", "mask")
}
_WHY_BUFFER = "torch moves and saves parameters and buffers only."
MASK_NOT_BUFFER = known("mask not a buffer", _WHY_BUFFER, step="mask")
# Tables of positions are often kept so, and moved by hand.
NOT_BUFFER = known("tensor not a buffer", _WHY_BUFFER, step="mask", is_warning=True)
ON_THE_CPU = known(
    "tensor made on the CPU",
    "torch.ones(T, T) is made on the CPU unless it is told otherwise.",
    "torch.ones(T, T, device=x.device)",
    "mask",
    is_warning=True,
)
OVERFLOW = known(
    "−1e9 overflows in fp16",
    "−∞ exists in every floating-point type, and its exponential is exactly 0.",
    "scores = scores.masked_fill(future, -torch.inf)",
    "mask",
    is_warning=True,
)
NAN_ROW = known(
    "fully masked row gives NaN",
    "The softmax of nothing but −∞ is 0 / 0. One NaN spreads to every number that is computed from it.",
    "weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)",
    "weights",
    is_warning=True,
)
FULL_TEXT_FAILS = known(
    "hard-coded sizes", "context_length is the longest text that fits, so that many tokens must fit."
)
_RAISE = 'if T > self.context_length: raise ValueError(f"{T} tokens do not fit")'
TOO_LONG = known(
    "sequence longer than the context",
    "A model has positions for context_length tokens only; say so instead of computing something.",
    _RAISE,
    is_warning=True,
)
CUT = known(
    "sequence longer than the context",
    "Whoever calls the layer adds its output to its input; say that the text is too long instead of cutting it.",
    _RAISE,
)
UNUSED = known("wrong parameter count", "They are saved, moved and counted, and never trained.")
BIAS = known(
    "wrong parameter count",
    "nn.Linear has a bias unless it is told otherwise.",
    "self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)",
)
TOO_WIDE = known(
    "wrong parameter count",
    "Every head as wide as the model computes attention too, with num_heads times the parameters and the time.",
    "self.head_dim = d_model // num_heads  # and W_query = nn.Linear(d_model, d_model)",
    is_warning=True,
)
NO_OUTPUT = known(
    "no output projection",
    "Until the output projection, no head has seen what another found.",
    "self.out_proj = nn.Linear(d_out, d_out)  # and return self.out_proj(concat)",
    "out",
)


def observe_behaviours(result: Experiment) -> list[Finding]:
    """Everything that is found, in the order in which a learner should read it."""
    behaviours = OF_FUNCTIONS if is_function(result.subject) else BEHAVIOURS
    return [finding for behaviour in behaviours for finding in behaviour(result)]


def _with_and_without_mask(result: Experiment) -> list[Experiment]:
    return [result] if result.masked is None else [result, result.masked]


def changes_arguments(result: Experiment) -> Iterator[Finding]:
    """In-place change of the caller's input or mask."""
    for one in _with_and_without_mask(result):
        names = [name for run in one.seen.runs for name in run.changed]
        if not names:
            continue
        what = "input" if min(names).partition(",")[0] in ("x", "q", "k", "v") else "mask"
        shape = one.tensors[names[0]].shape
        in_place = [call for call in one.seen.forward if call.name.endswith("_") or call.name in _IN_PLACE]
        lines = [
            call.line
            for call in in_place
            if (call.value.shape == shape if what == "input" else call.value.dim() < 4 or call.value.shape[1] == 1)
        ]
        says = f"After the call, the {what} that was passed has other numbers than before."
        yield CHANGED[what].found(says, lines[0] if lines else 0)
        return


def mask_on_another_device(result: Experiment) -> Iterator[Finding]:
    """A mask that is a plain attribute does not move with the module, nor does one that forward makes on the CPU."""
    contents = result.run(devices=True).contents
    if (fault := contents.get("elsewhere")) is None:
        return
    if loose := [one for one in contents.get("loose", ()) if len(one["shape"]) > 1]:
        name = loose[0]["name"]
        says = f"self.{name} is a plain tensor: it stays on the CPU when the module moves to a GPU, and is not saved."
        mistake = MASK_NOT_BUFFER if loose[0]["is_mask"] else NOT_BUFFER
        yield mistake.found(says, _made_line(result, name), fix=f'self.register_buffer("{name}", …)')
    else:
        says = "A tensor that forward makes is on the CPU, wherever x is: on a GPU the layer fails."
        yield ON_THE_CPU.found(says, fault["line"])


def overflows_in_fp16(result: Experiment) -> Iterator[Finding]:
    """−1e9 has no place in float16."""
    for one in _with_and_without_mask(result):
        failed = one.run(dtype="float16").failure
        if failed is not None and "overflow" in failed.message:
            says = "In float16 it fails: the largest number there is 65504, and −1e9 does not fit."
            yield OVERFLOW.found(says, failed.line)
            return


def row_without_keys(result: Experiment) -> Iterator[Finding]:
    """A query that may see nothing, where the layer takes a mask."""
    masked = result.masked
    if masked is None or not masked.is_explained or any(one.step in ("see", "hide") for one in masked.first):
        return
    visible = causal_mask(masked.sizes.T)
    visible[2] = False
    seen = masked.run(tensors=mask_forms(visible, torch.float64, masked.sizes.B))
    if any(t.isnan().any() for run in seen.runs for t in run.outputs if t.is_floating_point()):
        says = "Where the mask hides everything from a token, as in a text that is all padding, the output is NaN."
        yield NAN_ROW.found(says, softmax_line(result.seen))


def longer_than_context(result: Experiment) -> Iterator[Finding]:
    """A text longer than context_length that is computed without a word."""
    described, sizes = result.subject.described, result.sizes
    is_told = not result.subject.is_built and not has_config(described) and takes(described, CONTEXT[:4])
    if not is_told or result.call.layout != "batch first":
        return
    T = sizes.context_length
    if failed := result.run(1, inputs(_x(result, replace(sizes, T=T)))).failure:
        says = f"A text of exactly context_length = {T} tokens fails: {failed.message.splitlines()[0]}."
        yield FULL_TEXT_FAILS.found(says, failed.line)
    longer = replace(sizes, T=T + 2)
    seen = result.run(1, inputs(_x(result, longer)), record=True)
    if seen.failure is not None:
        return
    if result.outputs(seen, longer):
        yield TOO_LONG.found(f"{T + 2} tokens are computed without a word, where context_length is {T}.")
        return
    cuts = (call.line for call in seen.forward if call.name == "getitem" and call.value.dim() == 3)
    shapes = [tuple(t.shape) for t in seen.runs[0].outputs[:1]]
    out = f"the output is {shapes[0] if shapes else 'nothing'}"
    says = f"For {T + 2} tokens, where context_length is {T}, {out}: tokens disappear without a word."
    yield CUT.found(says, next(cuts, 0))


def other_sizes(result: Experiment) -> Iterator[Finding]:
    """One text, one token: where an axis disappears by squeeze(), or a size is written as a number."""
    if result.call.layout != "batch first" or result.call.mask:
        return
    B, T = result.sizes.B, result.sizes.T
    for b, t, words in ((1, T, "one text (B = 1)"), (B, 1, "one token (T = 1)"), (3, 4, "3 texts of 4 tokens")):
        sizes = replace(result.sizes, B=b, T=t)
        x = _x(result, sizes)
        seen = result.run(1, inputs(x))
        if seen.failure is not None:
            message = seen.failure.message.splitlines()[0]
            yield Finding("", f"It fails for {words}: {message}.", line=seen.failure.line)
            return
        outs = result.outputs(seen, sizes)
        if not outs:
            yield Finding("", f"For {words} the output has another shape: {tuple(seen.runs[0].outputs[0].shape)}.")
            return
        case = replace(result.case, x=result.prepared(x))
        if result.is_right and result.extension is None and not result.is_formula(outs[0], case):
            yield Finding("", f"For {words} it computes something else than for {B} texts of {T} tokens.")
            return


def parameters_without_use(result: Experiment) -> Iterator[Finding]:
    """Weights that change nothing, and biases that nobody asked for."""
    reading = result.reading
    if not reading.projections:
        return
    contents = result.run(gradients=True).contents
    shapes = {p["name"]: p["shape"] for p in contents.get("parameters", ())}
    yield from _too_wide(result)
    # Of those that are read, a mistake in the values has told already.
    unread = [n for n in contents.get("without_gradient", ()) if n not in reading.used]
    if unused := [n for n in unread if len(shapes.get(n, ())) > 1]:
        listed = ", ".join(f"{n} ({' × '.join(map(str, shapes[n]))})" for n in unused[:4])
        says = f"The layer has weights that change nothing: {listed}."
        yield UNUSED.found(says, _made_line(result, unused[0].split(".")[0]))
    asked = next((p for p in result.subject.described.get("build", ()) if p["name"] == "qkv_bias"), None)
    if asked is None or result.subject.is_built:
        return
    has_bias = reading.projections["W_query"].bias is not None
    wanted = bool(result.request.own.get("qkv_bias", False if asked["required"] else asked["default"]))
    if wanted != has_bias:
        says = f"qkv_bias is {wanted}, but the queries {'have a' if has_bias else 'have no'} bias."
        yield BIAS.found(says, line_with(result.subject.source, r"nn\.Linear\("))


def _too_wide(result: Experiment) -> Iterator[Finding]:
    """Heads that are each as wide as the model, where nobody asked for a width of heads."""
    described, reading, sizes = result.subject.described, result.reading, result.sizes
    if result.subject.is_built or has_config(described) or takes(described, HEAD_DIM):
        return
    rows = len(reading.projections["W_query"].weight)
    is_wide = rows == sizes.num_heads * sizes.width and sizes.num_heads > 1 and not reading.is_list
    if not is_wide or not takes(described, WIDTH) or not takes(described, HEADS):
        return
    weights = [name for name in sorted(reading.used) if name.endswith("weight")]
    says = (
        f"The queries are {rows} numbers wide, {sizes.num_heads} times d_model = {sizes.width}; "
        f"heads share the width: head_dim = d_model / num_heads = {sizes.head_dim}."
    )
    yield TOO_WIDE.found(says, _made_line(result, weights[0].split(".")[0]) if weights else 0)


def no_output_projection(result: Experiment) -> Iterator[Finding]:
    """Several heads that are joined and never mixed, in a layer that is called multi-head attention."""
    reading, name = result.reading, result.subject.described["name"].lower().replace("_", "")
    is_joined = bool(reading.projections) and reading.num_heads > 1 and not reading.is_list
    if is_joined and "out_proj" not in reading.projections and "multihead" in name:
        says = "The layer has no output projection: the joined heads are returned as they are."
        yield NO_OUTPUT.found(says, return_line(result.subject.source, result.seen.with_lines))


def _made_line(result: Experiment, name: str) -> int:
    """The line at which an attribute of the layer is made."""
    return line_with(result.subject.source, rf"self\.{re.escape(name)}\s*=")


def _x(result: Experiment, sizes: ProbeSizes) -> Tensor:
    return random_tensor(97, sizes.B, sizes.T, result.tensors["x"].shape[-1])


OF_FUNCTIONS = (changes_arguments, row_without_keys, overflows_in_fp16)
BEHAVIOURS = (
    changes_arguments,
    random_in_eval,
    no_output_projection,
    dropout_in_training,
    mask_on_another_device,
    other_sizes,
    cached_like_uncached,
    parameters_without_use,
    longer_than_context,
    row_without_keys,
    overflows_in_fp16,
)
