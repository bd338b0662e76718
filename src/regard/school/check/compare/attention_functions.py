"""Attention functions: attention that a learner writes as a function, of q, k, v; of x and weights; or of x alone.

They are compared with the formula as layers are: an `Experiment` with the same cases, calls and explanations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Projection
from regard.school.check.compare.call_forms import MASK, CallForm, causal_mask, mask_forms, positional
from regard.school.check.compare.constructor_arguments import CONTEXT, DROPOUT, HEADS, WIDTH, ProbeSizes, known_values
from regard.school.check.compare.experiment import Attempt, Group, Output, smallest_explanation
from regard.school.check.compare.parameters import Assignment
from regard.school.check.learner_code.protocol import ArgumentFacts
from regard.school.check.learner_code.subject import Subject, run_function
from regard.school.check.learner_code.text_hints import attention_roles
from regard.school.check.request import Request
from regard.support.vocabulary import BIAS, HEAD_DIM, WIDTH_IN, WIDTH_OUT

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
    tensors, case = _tensors(set(roles.values()), is_multi, sizes, seed + request.seed)
    forms = mask_forms(causal_mask(sizes.T), torch.float64, sizes.B) if masked else {}
    result.tensors = {**tensors, **forms}
    values = _plain_values(sizes) | dict(request.own)
    known = {*roles, *(name for name in names if name.lower() in MASK), *values}
    if unknown := [p["name"] for p in parameters if p["required"] and p["name"] not in known]:
        ask = request.spelling.argument % unknown[0]
        return replace(result, problem=f"nothing is known of its argument {unknown[0]}; give a value: {ask}")
    ways = list(_calls(parameters, roles, values, list(forms), request.own))
    seen = run_function(subject, result.job(calls=[way.as_json() for way in ways]), result.tensors)
    groups: list[Group] = []
    for layout in _LAYOUTS:
        outs = [
            Output(way, out.to(torch.float64))
            for way, run in zip(ways, seen.runs, strict=True)
            if way.layout == layout and not run.failed
            for out in way.outputs(run.outputs, sizes.B, sizes.T)
        ]
        one = _as_called(case, layout, layout == "heads apart" or is_multi)
        cases = [replace(one, causal=causal) for causal in _expected(result)]
        if masked:
            cases = [replace(cases[0], mask=causal_mask(sizes.T))]
        groups += [(Assignment(num_heads=one.num_heads), one, outs) for one in (cases if outs else ())]
    if not groups:
        problem = "" if seen.failure else "it returns no tensor of the shape of its input"
        return replace(result, failed=seen.failure, problem=problem)
    return smallest_explanation(result, groups)


def _plain_values(sizes: ProbeSizes) -> dict[str, Any]:
    """Values for sizes; of other arguments a person is asked: whether it is causal, say, decides what is right."""
    plain = (*HEADS, *HEAD_DIM, *WIDTH_IN, *WIDTH, *WIDTH_OUT, *CONTEXT, *DROPOUT)
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
    width = sizes.width if is_multi else sizes.head_dim
    projections = {name: Projection(random(width, d_in) * 1.5 * d_in**-0.5) for name in QKV}
    if "out_proj" in roles:
        projections["out_proj"] = Projection(random(width, width) * 1.5 * width**-0.5)
    for name, (weight, _) in projections.items():
        tensors |= {name: weight.t().contiguous(), f"{name}, (out, in)": weight.clone()}
    return tensors, Case(x, projections, H if is_multi else 1)


def _calls(
    parameters: Sequence[ArgumentFacts],
    roles: Mapping[str, str],
    values: Mapping[str, Any],
    masks: Sequence[str],
    own: Mapping[str, Any],
) -> Iterator[CallForm]:
    """Ways to call it: in every layout, with weights as (in, out) and (out, in), with every form of the mask."""
    layouts = _LAYOUTS if "q" in roles.values() else _LAYOUTS[1:]
    orientations = ("", ", (out, in)") if set(QKV) <= set(roles.values()) else ("",)
    others = {p["name"]: p["required"] or p["name"] in own for p in parameters if p["name"] not in roles}
    hides = [name for name in others if name.lower() in MASK]
    given: dict[str, Any] = {
        name: {"value": values[name]} for name, is_given in others.items() if is_given and name in values
    }
    for layout, orientation, form in product(layouts, orientations, masks or ("",)):
        suffix = "" if layout == "batch first" else f", {layout}"
        args = [role + (suffix if role in ("x", "q", "k", "v") else orientation) for role in roles.values()]
        masks_given = {name: form or {"value": None} for name in hides if form or others[name]}
        yield CallForm(tuple(args), given | masks_given, layout, form)


def _as_called(case: Case, layout: str, is_split: bool) -> Case:
    """The case as a call of this layout sees it: without heads, those of head 0 only; without a batch, text 0."""
    D, texts = case.head_dim, 1 if layout == "one text" else None
    if case.qkv is not None and not is_split:
        case = replace(case, x=case.x[..., :D], qkv=tuple(t[..., :D] for t in case.qkv), num_heads=1)
    return replace(case, x=case.x[:texts], qkv=case.qkv and tuple(t[:texts] for t in case.qkv))
