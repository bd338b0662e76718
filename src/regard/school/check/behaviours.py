"""Behaviours: what the values of one run cannot show, such as dropout, other sizes, fp16 and the caller's tensors.

Each function tries one thing and yields what it found. A new behaviour is a new function in BEHAVIOURS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from regard.school.check.building import CONTEXT, HEADS, WIDTH, ProbeSizes, has_config, takes
from regard.school.check.caching import cached_like_uncached
from regard.school.check.calling import inputs, mask_forms
from regard.school.check.dropping import dropout_in_training, random_in_eval
from regard.school.check.locating import return_line, softmax_line
from regard.school.check.situation import Situation, line_with
from regard.school.check.subject import Recorded
from regard.school.check.values import Experiment, is_formula
from regard.school.check.verdict import Finding
from regard.support.vocabulary import HEAD_DIM

_IN_PLACE = ("iadd", "imul", "isub", "itruediv", "setitem", "iand", "ior")


def observe(situation: Situation) -> list[Finding]:
    """Everything that is found, in the order in which a learner should read it."""
    is_function = "build" not in situation.subject.described
    behaviours = OF_FUNCTIONS if is_function else BEHAVIOURS
    return [finding for behaviour in behaviours for finding in behaviour(situation)]


def changes_arguments(situation: Situation) -> Iterator[Finding]:
    """In-place change of the caller's input or mask."""
    for result in (situation.result, situation.masked):
        if result is None or result.call is None:
            continue
        job = result.job(calls=[result.call.as_json()], record=True)
        seen = situation.subject.run(job, result.tensors)
        changed = sorted({name.partition(",")[0] for run in seen.runs for name in run.changed})
        if not changed:
            continue
        what = "input" if changed[0] in ("x", "q", "k", "v") else "mask"
        changes = [name for run in seen.runs for name in run.changed]
        shape = result.tensors[changes[0]].shape if what == "input" else None
        lines = [
            call.line
            for call in seen.recorded[seen.built :]
            if (call.name.endswith("_") or call.name in _IN_PLACE)
            and (call.value.shape == shape if shape else call.value.dim() < 4 or call.value.shape[1] == 1)
        ]
        yield Finding(
            f"in-place change of the caller's {what}",
            f"After the call, the {what} that was passed has other numbers than before.",
            "Whoever calls the layer may still need that tensor: a residual connection adds the input again.",
            "y = x + 1  # a new tensor, in place of x += 1 or x.add_(1)",
            line=lines[0] if lines else 0,
        )
        return


def mask_on_another_device(situation: Situation) -> Iterator[Finding]:
    """A mask that is a plain attribute does not move with the module, nor does one that forward makes on the CPU."""
    seen = situation.run(1, devices=True)
    fault = seen.contents.get("elsewhere")
    if fault is None:
        return
    loose = [one for one in seen.contents.get("loose", ()) if len(one["shape"]) > 1]
    if loose:
        name, is_mask = loose[0]["name"], loose[0]["is_mask"]
        yield Finding(
            "mask not a buffer" if is_mask else "tensor not a buffer",
            f"self.{name} is a plain tensor: it stays on the CPU when the module moves to a GPU, and is not saved.",
            "torch moves and saves parameters and buffers only.",
            f'self.register_buffer("{name}", …)',
            step="mask",
            line=line_with(situation.subject.source, rf"self\.{re.escape(name)}\s*="),
            is_warning=not is_mask,  # tables of positions are often kept so, and moved by hand
        )
    else:
        yield Finding(
            "tensor made on the CPU",
            "A tensor that forward makes is on the CPU, wherever x is: on a GPU the layer fails.",
            "torch.ones(T, T) is made on the CPU unless it is told otherwise.",
            "torch.ones(T, T, device=x.device)",
            step="mask",
            line=fault["line"],
            is_warning=True,
        )


def overflows_in_fp16(situation: Situation) -> Iterator[Finding]:
    """−1e9 has no place in float16."""
    for result in (situation.result, situation.masked):
        if result is None or result.call is None:
            continue
        seen = situation.subject.run(result.job(calls=[result.call.as_json()], dtype="float16"), result.tensors)
        if seen.failure is not None and "overflow" in seen.failure.message:
            yield Finding(
                "−1e9 overflows in fp16",
                "In float16 it fails: the largest number there is 65504, and −1e9 does not fit.",
                "−∞ exists in every floating-point type, and its exponential is exactly 0.",
                "scores = scores.masked_fill(future, -torch.inf)",
                step="mask",
                line=seen.failure.line,
                is_warning=True,
            )
            return


def row_without_keys(situation: Situation) -> Iterator[Finding]:
    """A query that may see nothing, where the layer takes a mask."""
    result = situation.masked
    if result is None or result.call is None or result.variants is None:
        return
    if any(one.step in ("see", "hide") for one in result.variants[0]):
        return
    sizes = result.sizes
    visible = torch.ones(sizes.T, sizes.T, dtype=torch.bool).tril()
    visible[2] = False
    forms = mask_forms(visible, torch.float64, sizes.B)
    seen = situation.subject.run(result.job(calls=[result.call.as_json()]), {**result.tensors, **forms})
    if any(t.isnan().any() for run in seen.runs for t in run.outputs if t.is_floating_point()):
        yield Finding(
            "fully masked row gives NaN",
            "Where the mask hides everything from a token, as in a text that is all padding, the output is NaN.",
            "The softmax of nothing but −∞ is 0 / 0. One NaN spreads to every number that is computed from it.",
            "weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)",
            step="weights",
            line=softmax_line(situation.record()),
            is_warning=True,
        )


def longer_than_context(situation: Situation) -> Iterator[Finding]:
    """A text longer than context_length that is computed without a word."""
    described, sizes = situation.subject.described, situation.result.sizes
    if situation.subject.is_built or not takes(described, CONTEXT[:4]) or situation.result.case is None:
        return
    if has_config(described) or situation.result.call is None or situation.result.call.layout != "batch first":
        return
    for T, fits in ((sizes.context_length, True), (sizes.context_length + 2, False)):
        changed = replace(sizes, T=T)
        x = _x(situation.result, changed)
        seen = situation.run(1, inputs(x))
        if fits and seen.failure is not None:
            yield Finding(
                "hard-coded sizes",
                f"A text of exactly context_length = {T} tokens fails: {seen.failure.message.splitlines()[0]}.",
                "context_length is the longest text that fits, so that many tokens must fit.",
                line=seen.failure.line,
            )
        elif not fits and seen.failure is None and not situation.outputs(seen, changed):
            yield _cut_text(situation, x, T)
        elif not fits and seen.failure is None:
            yield Finding(
                "sequence longer than the context",
                f"{T} tokens are computed without a word, where context_length is {T - 2}.",
                "A model has positions for context_length tokens only; say so instead of computing something.",
                'if T > self.context_length: raise ValueError(f"{T} tokens do not fit")',
                is_warning=True,
            )


def _cut_text(situation: Situation, x: Tensor, T: int) -> Finding:
    """A text longer than context_length of which only a part is computed."""
    seen = situation.run(1, inputs(x), record=True)
    cuts = (call.line for call in seen.recorded[seen.built :] if call.name == "getitem" and call.value.dim() == 3)
    shapes = [tuple(t.shape) for t in seen.runs[0].outputs[:1]]
    return Finding(
        "sequence longer than the context",
        f"For {T} tokens, where context_length is {T - 2}, the output is {shapes[0] if shapes else 'nothing'}: "
        "tokens disappear without a word.",
        "Whoever calls the layer adds its output to its input; say that the text is too long instead of cutting it.",
        'if T > self.context_length: raise ValueError(f"{T} tokens do not fit")',
        line=next(cuts, 0),
    )


def other_sizes(situation: Situation) -> Iterator[Finding]:
    """One text, one token: where an axis disappears by squeeze(), or a size is written as a number."""
    result = situation.result
    if result.call is None or result.case is None or result.call.layout != "batch first" or result.call.mask:
        return
    for B, T, words in (
        (1, result.sizes.T, "one text (B = 1)"),
        (result.sizes.B, 1, "one token (T = 1)"),
        (3, 4, "3 texts of 4 tokens"),
    ):
        sizes = replace(result.sizes, B=B, T=T)
        x = _x(result, sizes)
        seen = situation.run(1, inputs(x))
        if seen.failure is not None:
            message = seen.failure.message.splitlines()[0]
            yield Finding("", f"It fails for {words}: {message}.", line=seen.failure.line)
            return
        outs = situation.outputs(seen, sizes)
        if not outs:
            yield Finding("", f"For {words} the output has another shape: {tuple(seen.runs[0].outputs[0].shape)}.")
            return
        if (
            result.is_right
            and result.extension is None
            and not is_formula(result, outs[0], replace(result.case, x=result.prepared(x)))
        ):
            yield Finding(
                "",
                f"For {words} it computes something else than for {result.sizes.B} texts of {result.sizes.T} tokens.",
            )
            return


def parameters_without_use(situation: Situation) -> Iterator[Finding]:
    """Weights that change nothing, and biases that nobody asked for."""
    result = situation.result
    if result.reading is None or result.reading.assignment is None:
        return
    seen = situation.run(1, gradients=True)
    shapes = {p["name"]: p["shape"] for p in seen.contents.get("parameters", ())}
    read = result.reading.assignment.used  # of these, a mistake in the values has told already
    if finding := _too_wide(situation):
        yield finding
    unused = [n for n in seen.contents.get("without_gradient", ()) if len(shapes.get(n, ())) > 1 and n not in read]
    if unused:
        listed = ", ".join(f"{n} ({' × '.join(map(str, shapes[n]))})" for n in unused[:4])
        yield Finding(
            "wrong parameter count",
            f"The layer has weights that change nothing: {listed}.",
            "They are saved, moved and counted, and never trained.",
            "",
            line=line_with(situation.subject.source, rf"self\.{re.escape(unused[0].split('.')[0])}\s*="),
        )
    asked = next((p for p in situation.subject.described.get("build", ()) if p["name"] == "qkv_bias"), None)
    has_bias = result.reading.assignment.projections["W_query"].bias is not None
    if asked is not None and not situation.subject.is_built:
        wanted = bool(situation.request.own.get("qkv_bias", False if asked["required"] else asked["default"]))
        if wanted != has_bias:
            yield Finding(
                "wrong parameter count",
                f"qkv_bias is {wanted}, but the queries {'have a' if has_bias else 'have no'} bias.",
                "nn.Linear has a bias unless it is told otherwise.",
                "self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)",
                line=line_with(situation.subject.source, r"nn\.Linear\("),
            )


def _too_wide(situation: Situation) -> Finding | None:
    """Heads that are each as wide as the model, where nobody asked for a width of heads."""
    described, reading, sizes = situation.subject.described, situation.result.reading, situation.result.sizes
    if situation.subject.is_built or has_config(described) or takes(described, HEAD_DIM) or reading is None:
        return None
    if not (takes(described, WIDTH) and takes(described, HEADS)) or reading.assignment is None:
        return None
    rows = len(reading.assignment.projections["W_query"].weight)
    if reading.assignment.is_list or rows != sizes.num_heads * sizes.width or sizes.num_heads == 1:
        return None
    weights = [name for name in sorted(reading.assignment.used) if name.endswith("weight")]
    return Finding(
        "wrong parameter count",
        f"The queries are {rows} numbers wide, {sizes.num_heads} times d_model = {sizes.width}; "
        f"heads share the width: head_dim = d_model / num_heads = {sizes.head_dim}.",
        "Every head as wide as the model computes attention too, with num_heads times the parameters and the time.",
        "self.head_dim = d_model // num_heads  # and W_query = nn.Linear(d_model, d_model)",
        line=line_with(situation.subject.source, rf"self\.{re.escape(weights[0].split('.')[0])}\s*=") if weights else 0,
        is_warning=True,
    )


def caches(situation: Situation) -> Iterator[Finding]:
    """A cache of keys and values."""
    yield from cached_like_uncached(situation.subject, situation.result)


def no_output_projection(situation: Situation) -> Iterator[Finding]:
    """Several heads that are joined and never mixed, in a layer that is called multi-head attention."""
    reading, name = situation.result.reading, situation.subject.described["name"].lower().replace("_", "")
    if reading is None or reading.assignment is None or reading.num_heads == 1 or reading.assignment.is_list:
        return
    if "out_proj" in reading.assignment.projections or "multihead" not in name:
        return
    yield Finding(
        "no output projection",
        "The layer has no output projection: the joined heads are returned as they are.",
        "Until the output projection, no head has seen what another found.",
        "self.out_proj = nn.Linear(d_out, d_out)  # and return self.out_proj(concat)",
        step="out",
        line=return_line(situation.subject.source, _own_calls(situation)),
    )


def _own_calls(situation: Situation) -> list[Recorded]:
    seen = situation.record()
    return [call for call in seen.recorded[seen.built :] if call.line]


def _x(result: Experiment, sizes: ProbeSizes) -> Tensor:
    generator = torch.Generator().manual_seed(97)
    return torch.randn(sizes.B, sizes.T, result.tensors["x"].shape[-1], dtype=torch.float64, generator=generator)


OF_FUNCTIONS = (changes_arguments, row_without_keys, overflows_in_fp16)
BEHAVIOURS = (
    changes_arguments,
    random_in_eval,
    no_output_projection,
    dropout_in_training,
    mask_on_another_device,
    other_sizes,
    caches,
    parameters_without_use,
    longer_than_context,
    row_without_keys,
    overflows_in_fp16,
)
