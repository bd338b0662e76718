"""Attention functions: attention that a learner writes as a function, of q, k, v; of x and weights; or of x alone.

They are compared with the formula as layers are: an `Experiment` with the same cases, calls and explanations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Projection
from regard.school.check.compare.call_forms import MASK, CallForm, causal_mask, mask_forms, options_of, positional
from regard.school.check.compare.constructor_arguments import (
    CONTEXT,
    DROPOUT,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    WIDTH,
    ProbeSizes,
    known_values,
)
from regard.school.check.compare.experiment import Attempt, Group, Output, smallest_explanation
from regard.school.check.compare.parameters import Assignment
from regard.school.check.learner_code.protocol import ArgumentFacts, Observation
from regard.school.check.learner_code.subject import Subject, run_function
from regard.school.check.learner_code.text_hints import attention_roles, own_text
from regard.school.check.request import Request
from regard.support.vocabulary import BIAS, WIDTH_IN, WIDTH_OUT

_LAYOUTS = ("heads apart", "batch first", "one text")


def function_experiment(
    subject: Subject, sizes: ProbeSizes, seed: int, request: Request, masked: bool = False
) -> Attempt:
    """Call the function with known tensors, and explain what it gives."""
    parameters = positional(subject.described["call"])
    names = [p["name"] for p in parameters]
    roles = attention_roles(names, subject.described["name"])
    result = Attempt(subject=subject, request=request, sizes=sizes)
    if roles is None:
        ask = "name them q, k, v, or x, W_q, W_k, W_v, or x alone"
        return replace(result, problem=f"its arguments are not known; {ask}")
    is_multi = any(name in HEADS for name in names)
    given = set(roles.values())
    if "params" in given:
        text = own_text(subject.source, subject.described["name"])
        is_multi, sizes, given = _of_dict(text, is_multi, sizes, given)
        result.sizes = sizes
    tensors, case = _tensors(given, is_multi, sizes, seed + request.seed)
    forms = mask_forms(causal_mask(sizes.T), torch.float64, sizes.B) if masked else {}
    result.tensors = {**tensors, **forms}
    values = _plain_values(sizes) | dict(request.own)
    values |= {name: options_of(name)[-1] for name in names if "len" in name and name not in values}
    result.tensors |= {"lengths": torch.full((sizes.B,), sizes.T)} if "lengths" in values.values() else {}
    known = {*roles, *(name for name in names if name.lower() in MASK), *values}
    if unknown := [p["name"] for p in parameters if p["required"] and p["name"] not in known]:
        ask = request.spelling.argument % unknown[0]
        return replace(result, problem=f"nothing is known of its argument {unknown[0]}; give a value: {ask}")
    ways = list(_calls(parameters, roles, values, list(forms), request.own, result.tensors))
    seen = run_function(subject, result.job(calls=[way.as_json() for way in ways]), result.tensors)
    groups = _groups(result, ways, seen, case, is_multi, masked)
    if not groups:
        problem = "" if seen.failure else "it returns no tensor of the shape of its input"
        return replace(result, failed=seen.failure, problem=problem)
    return smallest_explanation(result, groups)


def _groups(
    result: Attempt, ways: Sequence[CallForm], seen: Observation, case: Case, is_multi: bool, masked: bool
) -> list[Group]:
    """The outputs of every layout, each with the cases that they may be."""
    groups: list[Group] = []
    for layout in _LAYOUTS:
        outs = [
            Output(way, out.to(torch.float64))
            for way, run in zip(ways, seen.runs, strict=True)
            if way.layout == layout and not run.failed
            for out in way.outputs(run.outputs, result.sizes.B, result.sizes.T)
        ]
        one = _as_called(case, layout, layout == "heads apart" or is_multi)
        cases = [replace(one, causal=causal) for causal in _expected(result)]
        if masked:
            cases = [replace(cases[0], mask=causal_mask(result.sizes.T))]
        groups += [(Assignment(num_heads=one.num_heads), one, outs) for one in (cases if outs else ())]
    return groups


def _of_dict(text: str, is_multi: bool, sizes: ProbeSizes, given: set[str]) -> tuple[bool, ProbeSizes, set[str]]:
    """What a dict of matrices of (E, E) must hold, and whether there are heads: the text says it."""
    read = {name for name, pattern in _READS.items() if re.search(pattern, text)}
    has_heads = is_multi or "head" in text or "mha" in text
    return has_heads, replace(sizes, d_in=sizes.width), {*given, *QKV, *read}


# What a function reads of a dict of parameters beside the three projections, and how the weights may be named in it.
_READS = {"out_proj": r"""["'](w_?|W_?)?([oO]|out\w*)["']""", "biases": r"""["']b(_?[qkvo]\w*)?["']"""}
_SPELLINGS = {
    role: [f"{w}{one}" for w in ("", "w", "W", "w_", "W_") for one in (*letters, letters[0].upper())]
    for role, letters in zip(
        (*QKV, "out_proj"), (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out")), strict=True
    )
}


def _plain_values(sizes: ProbeSizes) -> dict[str, Any]:
    """Values for sizes; of other arguments a person is asked: whether it is causal, say, decides what is right."""
    plain = (*HEADS, *KV_HEADS, *HEAD_DIM, *WIDTH_IN, *WIDTH, *WIDTH_OUT, *CONTEXT, *DROPOUT)
    values = known_values(sizes)
    return {name: values[name] for name in plain} | dict.fromkeys(BIAS)


def _expected(result: Attempt) -> tuple[bool, ...]:
    name = result.subject.described["name"].lower()
    by_name = (True,) if "causal" in name or "masked" in name else (False, True)
    return by_name if result.request.causal is None else (result.request.causal,)


def _tensors(roles: set[str], is_multi: bool, sizes: ProbeSizes, seed: int) -> tuple[dict[str, Tensor], Case]:
    """The tensors of every call by name, and the case that they are."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    B, H, T, D, d_in = sizes.B, sizes.num_heads, sizes.T, sizes.head_dim, sizes.d_in
    if "q" in roles:
        q, k, v = (random(B, H, T, D) for _ in range(3))
        joined = tuple(t.transpose(1, 2).flatten(2) for t in (q, k, v))
        tensors: dict[str, Tensor] = {}
        for name, t, full in zip("qkv", (q, k, v), joined, strict=True):
            one = full if is_multi else t[:, 0]  # a function that splits the heads itself gets all of them
            tensors |= {f"{name}, heads apart": t, name: one.clone(), f"{name}, one text": one[0].clone()}
        return tensors, Case(joined[0], num_heads=H, qkv=joined)
    x = random(B, T, d_in) * (1 if roles & set(QKV) else 0.7)
    tensors = {"x": x, "x, one text": x[0].clone()}
    if not roles & set(QKV):
        return tensors, Case(x, scaled=False)
    width = sizes.width if is_multi or "params" in roles else sizes.head_dim
    projections = {name: Projection(random(width, d_in) * 1.5 * d_in**-0.5) for name in QKV}
    if "out_proj" in roles:
        projections["out_proj"] = Projection(random(width, width) * 1.5 * width**-0.5)
    if "biases" in roles:
        projections = {name: Projection(weight, random(width) * 0.3) for name, (weight, _) in projections.items()}
    for name, projection in projections.items():
        tensors |= _oriented(name, projection, H if is_multi else 0)
    tensors |= _packed(projections)
    return tensors, Case(x, projections, H if is_multi else 1)


def _packed(projections: Mapping[str, Projection]) -> dict[str, Tensor]:
    """The three projections in one weight, as (in, out) and as (out, in), and their biases."""
    weight = torch.cat([projections[name].weight for name in QKV])
    biases = [bias for name in QKV if (bias := projections[name].bias) is not None]
    packed = {"qkv": weight.t().contiguous(), "qkv, (out, in)": weight}
    return packed | ({"qkv, bias": torch.cat(biases)} if biases else {})


def _oriented(name: str, projection: Projection, heads: int) -> dict[str, Tensor]:
    """A weight as (in, out), as (out, in) and by head: (H, in, D), and of the output (H, D, out); and its bias."""
    weight, bias = projection
    tensors = {name: weight.t().contiguous(), f"{name}, (out, in)": weight.clone()}
    if bias is not None:
        tensors[f"{name}, bias"] = bias
    if heads:
        axis = 1 if name == "out_proj" else 0
        tensors[f"{name}, by head"] = weight.unflatten(axis, (heads, -1)).movedim(axis, 0).mT.contiguous()
    return tensors


def _calls(
    parameters: Sequence[ArgumentFacts],
    roles: Mapping[str, str],
    values: Mapping[str, Any],
    masks: Sequence[str],
    own: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> Iterator[CallForm]:
    """Ways to call it: in every layout, with weights as (in, out) and (out, in), with every form of the mask."""
    layouts = _LAYOUTS if "q" in roles.values() else _LAYOUTS[1:]
    orientations = [one for one in ("", ", (out, in)", ", by head") if f"W_query{one}" in tensors] or [""]
    others = {p["name"]: p["required"] or p["name"] in own for p in parameters if p["name"] not in roles}
    hides = [name for name in others if name.lower() in MASK]
    told_values = [name for name, is_given in others.items() if is_given and name in values]
    given = {name: "lengths" if values[name] == "lengths" else {"value": values[name]} for name in told_values}
    leading = next((i for i, p in enumerate(parameters) if p["name"] in others), len(parameters))
    for layout, orientation, form in product(layouts, orientations, masks or ("",)):
        told = {name: _weights(name, role, layout, orientation, tensors) for name, role in roles.items()}
        masks_given: dict[str, Any] = {name: form or {"value": None} for name in hides if others[name] or form}
        by_name = dict(list(told.items())[leading:])
        yield CallForm(tuple(told.values())[:leading], by_name | given | masks_given, layout, form)


def _weights(name: str, role: str, layout: str, orientation: str, tensors: Mapping[str, Tensor]) -> Any:
    """A tensor for an argument; a dict of all weights, or a function, where its name says so."""
    if role in ("x", "q", "k", "v"):
        return role if layout == "batch first" else f"{role}, {layout}"
    if name.lower().startswith("to_"):
        return {"linear": role + orientation}
    if role != "params":
        return role + orientation
    named = {key: f"{role}{orientation}" for role, keys in _SPELLINGS.items() if role in tensors for key in keys}
    biases = [(role, f"{role}, bias") for role in _SPELLINGS if f"{role}, bias" in tensors]
    named |= {f"{b}{one}": bias for role, bias in biases for b in ("b", "b_") for one in _SPELLINGS[role][:2]}
    together = {f"{w}qkv": f"qkv{orientation}" for w in ("", "w", "W", "w_", "W_")} | {"b_qkv": "qkv, bias"}
    return {"dict": named | {key: one for key, one in together.items() if one in tensors}}


def _as_called(case: Case, layout: str, is_split: bool) -> Case:
    """The case as a call of this layout sees it: without heads, those of head 0 only; without a batch, text 0."""
    D, texts = case.head_dim, 1 if layout == "one text" else None
    if case.qkv is not None and not is_split:
        case = replace(case, x=case.x[..., :D], qkv=tuple(t[..., :D] for t in case.qkv), num_heads=1)
    return replace(case, x=case.x[:texts], qkv=case.qkv and tuple(t[:texts] for t in case.qkv))
