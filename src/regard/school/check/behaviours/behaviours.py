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

from regard.school.check.behaviours.cache_steps import cached_step_by_step
from regard.school.check.behaviours.callers_tensors import changes_arguments
from regard.school.check.behaviours.configuration import (
    arguments_are_used,
    causal_flag,
    one_head,
    shared_key_heads,
)
from regard.school.check.behaviours.cross_attention import cross_attention
from regard.school.check.behaviours.dropout import dropout_in_training, random_in_eval
from regard.school.check.behaviours.gradients import gradients, lost_gradients, unused_parameters
from regard.school.check.behaviours.kv_cache import cached_like_uncached
from regard.school.check.behaviours.masks_by_text import masks_by_text
from regard.school.check.behaviours.numbers import float32, large_scores, promised_dtypes
from regard.school.check.behaviours.own_sizes import free_head_width, own_defaults, positions_have_an_effect, two_widths
from regard.school.check.behaviours.padding import padded_texts
from regard.school.check.behaviours.probing import one_line
from regard.school.check.behaviours.registry import NotOffered, Observed, behaviour
from regard.school.check.behaviours.repeated_calls import repeated_calls
from regard.school.check.behaviours.returned_weights import returned_weights
from regard.school.check.behaviours.sizes import batches, lengths, maps, mixed_texts, some_lengths
from regard.school.check.behaviours.stated_positions import near_keys_count_more, window_as_stated
from regard.school.check.behaviours.texts import equal_tokens, memory_order
from regard.school.check.compare.call_forms import causal_mask, inputs, mask_forms, random_tensor
from regard.school.check.compare.constructor_arguments import (
    CONTEXT,
    HEADS,
    ROLES,
    WIDTH,
    ProbeSizes,
    has_config,
    takes,
)
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with, return_line, softmax_line
from regard.school.check.learner_code.subject import is_function
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import HEAD_DIM

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


def observe_behaviours(result: Experiment) -> Observed:
    """Everything that is found, in the order in which a learner should read it; one error hides its consequences."""
    observed = Observed([], [], [])
    is_right = result.is_right and (result.masked is None or result.masked.is_right)
    for one in BEHAVIOURS:
        names = [each.name for each in observed.findings if not each.is_warning]
        is_consequence = one in (*OF_RIGHT_LAYERS, cached_step_by_step) and (not is_right or bool(names))
        is_consequence |= one is unused_parameters and any(name.startswith("gradient") for name in names)
        if not is_consequence and (one.of_functions or not is_function(result.subject)):
            observed.add(one, result)
    return observed


def explain_unknown(result: Experiment) -> list[Finding]:
    """What explains an output that no known mistake gives: it changes its input, is another at every call, mixes
    the texts of a batch, is right for other lengths, or cuts a gradient.
    """
    observed = Observed([], [], [])
    others = (mixed_texts, some_lengths, lost_gradients)
    for one in (changes_arguments, repeated_calls, random_in_eval, *others):
        if not observed.findings and (one.of_functions or not is_function(result.subject)):
            observed.add(one, result)
    return [finding for finding in observed.findings if not finding.is_warning]


@behaviour("devices")
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


@behaviour("rows without keys", of_functions=True)
def row_without_keys(result: Experiment) -> Iterator[Finding]:
    """A query that may see nothing, where the layer takes a mask."""
    masked = result.masked
    is_torch = masked is not None and masked.is_explained and not masked.is_numpy
    if masked is None or not is_torch or any(one.step in ("see", "hide") for one in masked.first):
        raise NotOffered
    visible = causal_mask(masked.sizes.T)
    visible[2] = False
    seen = masked.run(tensors=mask_forms(visible, torch.float64, masked.sizes.B))
    if any(t.isnan().any() for run in seen.runs for t in run.outputs if t.is_floating_point()):
        says = "Where the mask hides everything from a token, as in a text that is all padding, the output is NaN."
        yield NAN_ROW.found(says, softmax_line(result.seen))


@behaviour("texts that are too long")
def longer_than_context(result: Experiment) -> Iterator[Finding]:
    """A text longer than context_length that is computed without a word."""
    described, sizes = result.subject.described, result.sizes
    is_told = not result.subject.is_built and not has_config(described) and takes(described, CONTEXT[:4])
    if not is_told or result.call.layout != "batch first":
        raise NotOffered
    T = sizes.context_length
    if failed := result.run(1, inputs(_x(result, replace(sizes, T=T)))).failure:
        says = f"A text of exactly context_length = {T} tokens fails: {one_line(failed)}."
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


@behaviour("parameters")
def biases_and_widths(result: Experiment) -> Iterator[Finding]:
    """Biases that nobody asked for, and heads that are too wide."""
    reading = result.reading
    if not reading.projections:
        raise NotOffered
    yield from _too_wide(result)
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


@behaviour("parameters")
def no_output_projection(result: Experiment) -> Iterator[Finding]:
    """Several heads that are joined and never mixed, in a layer that is called multi-head attention."""
    reading, name = result.reading, result.subject.described["name"].lower().replace("_", "")
    is_joined = bool(reading.projections) and reading.num_heads > 1 and not reading.is_list
    is_applied = any("output" in one.acts for one in result.first)
    is_missing = is_joined and not is_applied and "out_proj" not in reading.projections
    if is_missing and "multihead" in name and not _is_told_width_of_values(result):
        says = "The layer has no output projection: the joined heads are returned as they are."
        yield NO_OUTPUT.found(says, return_line(result.subject.source, result.seen.with_lines))


def _is_told_width_of_values(result: Experiment) -> bool:
    """Is it built with a width for the values, and none for the output? Then the joined heads are the output."""
    names = [p["name"].lower() for p in result.subject.described.get("build", ())]
    of_values = [n for n in names if re.fullmatch(r"(dim|d|n)_?v(al(ue)?s?)?|v(al(ue)?)?_?(dim|size)", n)]
    others = [n for n in names if ROLES.get(n) in ("d_model", "d_out") and not re.search(r"_?[qkv]$", n)]
    return bool(of_values) and not others


def _made_line(result: Experiment, name: str) -> int:
    """The line at which an attribute of the layer is made."""
    return line_with(result.subject.source, rf"self\.{re.escape(name)}\s*=")


def _x(result: Experiment, sizes: ProbeSizes) -> Tensor:
    return random_tensor(97, sizes.B, sizes.T, result.tensors["x"].shape[-1])


# What is tried of layers in which nothing else was found: a mistake shows in all of these.
OF_RIGHT_LAYERS = (
    repeated_calls,
    batches,
    maps,
    lengths,
    one_head,
    gradients,
    returned_weights,
    cross_attention,
    padded_texts,
    masks_by_text,
    large_scores,
    float32,
    causal_flag,
    equal_tokens,
    memory_order,
    window_as_stated,
)
BEHAVIOURS = (
    changes_arguments,
    random_in_eval,
    *OF_RIGHT_LAYERS,
    no_output_projection,
    dropout_in_training,
    mask_on_another_device,
    cached_like_uncached,
    cached_step_by_step,
    unused_parameters,
    biases_and_widths,
    own_defaults,
    free_head_width,
    two_widths,
    positions_have_an_effect,
    near_keys_count_more,
    arguments_are_used,
    shared_key_heads,
    longer_than_context,
    row_without_keys,
    promised_dtypes,
)
