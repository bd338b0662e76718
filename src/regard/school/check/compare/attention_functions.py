"""Attention functions: attention that a learner writes as a function, of q, k, v; of x and weights; or of x alone.

They are compared with the formula as layers are: an `Experiment` with the same cases, calls and explanations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Projection
from regard.school.check.compare.call_forms import (
    HEADS_APART,
    LAYOUTS,
    MASK,
    CallForm,
    causal_mask,
    mask_forms,
    mask_of,
    options_of,
    positional,
)
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
from regard.school.check.compare.experiment import Attempt, Experiment, Group, Output, smallest_explanation
from regard.school.check.compare.parameters import Assignment
from regard.school.check.learner_code.protocol import ArgumentFacts, Observation
from regard.school.check.learner_code.subject import Subject, run_function
from regard.school.check.learner_code.text_hints import attention_roles, layouts_of_heads
from regard.school.check.request import Request
from regard.support.vocabulary import BIAS, WIDTH_IN, WIDTH_OUT

NO_OUTPUT = "it returns no tensor of the shape of its input"
_WINDOW = r"(?i)radius|(\w+_)?window(_size)?|band(width)?|span"
_PACKED, _AND_BIAS = ("qkv", "out_proj"), " and bias"  # weights that may come in a dict with their bias
_OF_X = (LAYOUTS[0], LAYOUTS[2])
# Of a layout with an axis for the heads, such as (B, H, T, D): in which others the output may come; "" is the same.
_RETURNS = {one: ("", *(to for to in (*HEADS_APART, LAYOUTS[0]) if to != one)) for one in HEADS_APART}


def function_experiment(
    subject: Subject, sizes: ProbeSizes, seed: int, request: Request, masked: bool = False
) -> Attempt:
    """Call the function with known tensors, and explain what it gives; with a weight for each head where it fails."""
    names = [p["name"] for p in _taken(subject)]
    roles = attention_roles(names, subject.described["name"])
    is_multi = any(name in HEADS for name in names)
    if window := [p["name"] for p in subject.described["call"] if p["required"] and re.fullmatch(_WINDOW, p["name"])]:
        told = replace(request, own={window[0]: 2, **request.own})
        banded = _experiment(subject, sizes, seed, told, masked, is_multi, roles, told.own[window[0]])
        if banded.is_explained:
            return banded
    first = _experiment(subject, sizes, seed, request, masked, is_multi, roles)
    if isinstance(first, Experiment) or first.failed is None or not {*QKV} <= {*(roles or {}).values()}:
        return first
    square = replace(sizes, d_in=sizes.width)  # it may take weights that are squares
    others = (_experiment(subject, one, seed, request, masked, True, roles) for one in (sizes, square))
    return next((one for one in others if isinstance(one, Experiment)), first)


def _experiment(
    subject: Subject,
    sizes: ProbeSizes,
    seed: int,
    request: Request,
    masked: bool,
    is_multi: bool,
    roles: dict[str, str] | None,
    window: int = 0,
) -> Attempt:
    """The same for one head or several, and for a window of tokens where it takes one."""
    parameters = _taken(subject)
    names = [p["name"] for p in parameters]
    result = Attempt(subject=subject, request=request, sizes=sizes)
    if roles is None:
        ask = "name them q, k, v, or x, W_q, W_k, W_v, or x alone"
        return replace(result, problem=f"its arguments are not known; {ask}")
    roles, given, is_multi, sizes = _unpacked(roles, result.text, is_multi, sizes)
    result.sizes = sizes
    tensors, case = _tensors(given, is_multi, sizes, seed + request.seed)
    forms = mask_forms(causal_mask(sizes.T), torch.float64, sizes.B) if masked else {}
    result.tensors = {**tensors, **forms}
    values = _plain_values(sizes) | dict(request.own)
    values |= {name: options_of(name)[-1] for name in names if "len" in name and name not in values}
    result.tensors |= {"lengths": torch.full((sizes.B,), sizes.T)} if "lengths" in values.values() else {}
    masks = {*(name for name in names if name.lower() in MASK), mask_of(subject)}
    known = {*roles, *masks, *values}
    if unknown := [p["name"] for p in parameters if p["required"] and p["name"] not in known]:
        return replace(result, problem=request.ask_for_value(unknown[0]))
    layouts = (*layouts_of_heads(result.text), *_OF_X) if "q" in given else _OF_X
    ways = list(_calls(parameters, roles, values, list(forms), request.own, result.tensors, masks, layouts))
    seen = run_function(subject, result.job(calls=[way.as_json() for way in ways]), result.tensors)
    result.is_numpy = seen.is_numpy
    groups = _groups(result, ways, seen, case, is_multi, masked)
    if window and not masked:
        groups = list(_banded(groups, sizes.T, window))
    return smallest_explanation(result, groups) if groups else _without_output(result, seen, "q" in given)


def _taken(subject: Subject) -> list[ArgumentFacts]:
    """The arguments of a function, those last that can only be given by name."""
    call = subject.described["call"]
    return [*positional(call), *(p for p in call if p["kind"] == "KEYWORD_ONLY")]


def _without_output(result: Attempt, seen: Observation, is_of_qkv: bool) -> Attempt:
    """Why there is nothing to compare: it fails, or it runs and gives no tensor that could be the output."""
    if seen.failure is None or (is_of_qkv and any(t.dim() > 2 for run in seen.runs for t in run.outputs)):
        return replace(result, problem=NO_OUTPUT)
    unnamed = [run.failed for run in seen.runs if run.failed is not None and run.failed.type == "NameError"]
    return replace(result, failed=unnamed[0] if unnamed else seen.failure)  # a name is missing whatever is passed


def _groups(
    result: Attempt, ways: Sequence[CallForm], seen: Observation, case: Case, is_multi: bool, masked: bool
) -> list[Group]:
    """The outputs of every layout, each with the cases that they may be."""
    groups: list[Group] = []
    for layout in dict.fromkeys(way.layout for way in ways):
        outs = [
            Output(way, out.to(torch.float64))
            for way, run in zip(ways, seen.runs, strict=True)
            if way.layout == layout and not run.failed
            for out in way.outputs(run.outputs, result.sizes.B, result.sizes.T)
        ]
        one = _as_called(case, layout, layout in HEADS_APART or is_multi)
        cases = [replace(one, causal=causal) for causal in _expected(result)]
        if masked:
            cases = [replace(cases[0], mask=causal_mask(result.sizes.T))]
        groups += [(Assignment(num_heads=one.num_heads), one, outs) for one in (cases if outs else ())]
    return groups


def _banded(groups: Sequence[Group], T: int, window: int) -> Iterator[Group]:
    """The same, seeing a window of so many tokens before a token, or before and after it, as people count them."""
    distance = torch.arange(T)[:, None] - torch.arange(T)
    before = [(distance >= 0) & (distance < n) for n in (window, window + 1)]
    around = [distance.abs() <= n for n in (window, window - 1, window // 2)]
    for reading, case, outs in groups:
        yield from ((reading, replace(case, causal=False, mask=one), outs) for one in (*before, *around))


def _unpacked(
    roles: dict[str, str], text: str, is_multi: bool, sizes: ProbeSizes
) -> tuple[dict[str, str], set[str], bool, ProbeSizes]:
    """Roles by argument, all roles, is_multi, sizes: of one weight for q, k, v, and of a dict, the text says them."""
    given = set(roles.values())
    if not given & {"qkv", "params"}:
        return roles, given, is_multi, sizes
    if "qkv" in given:
        with_bias = [n for n in roles if roles[n] in _PACKED and re.search(rf"\*\*{n}\b|\b{n}\[[\"']", text)]
        roles = {n: f"{role}{_AND_BIAS}" if n in with_bias else role for n, role in roles.items()}
        given |= {"biases", "out_bias"} if with_bias else set()
    if "params" in given:
        given |= {name for name, pattern in _READS.items() if re.search(pattern, text)}
        is_multi = is_multi or "head" in text or "mha" in text
    return roles, {*given, *QKV}, is_multi, replace(sizes, d_in=sizes.width)


# What a function reads of a dict of parameters beside the three projections, and how the weights may be named in it.
_READS = {"out_proj": r"""["'](w_?|W_?)?([oO]|out\w*)["']""", "biases": r"""["']b(_?(qkv|[qkv])\w*)?["']"""}
_READS["out_bias"] = r"""["']b_?o\w*["']"""
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
    described = result.subject.described
    name = described["name"].lower()
    takes_mask = mask_of(result.subject) or any(re.search("mask|pad|len|valid", p["name"]) for p in described["call"])
    by_name = (True,) if "causal" in name or ("masked" in name and not takes_mask) else (False, True)
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
            heads = {f"{name}, heads apart": t, f"{name}, heads behind": t.transpose(1, 2).contiguous()}
            tensors |= {**heads, name: one.clone(), f"{name}, one text": one[0].clone()}
        return tensors, Case(joined[0], num_heads=H, qkv=joined)
    x = random(B, T, d_in) * (1 if roles & set(QKV) else 0.7)
    tensors = {"x": x, "x, one text": x[0].clone()}
    if not roles & set(QKV):
        return tensors, Case(x, scaled=False)
    width = sizes.width if is_multi or "params" in roles else sizes.head_dim
    projections = {name: Projection(random(width, d_in) * 1.5 * d_in**-0.5) for name in QKV}
    if "out_proj" in roles:
        projections["out_proj"] = Projection(random(width, width) * 1.5 * width**-0.5)
    for name, projection in projections.items():
        if roles & {"biases", "out_bias" if name == "out_proj" else "biases"}:
            projections[name] = Projection(projection.weight, random(width) * 0.3)
        tensors |= _oriented(name, projections[name], H * is_multi)
    tensors |= _packed(projections)
    return tensors, Case(x, projections, H if is_multi else 1)


def _packed(projections: Mapping[str, Projection]) -> dict[str, Tensor]:
    """The three projections in one weight, as (in, out) and as (out, in), and their biases."""
    weight = torch.cat([projections[name].weight for name in QKV])
    biases = [bias for name in QKV if (bias := projections[name].bias) is not None]
    packed = {"qkv": weight.t().contiguous(), "qkv, (out, in)": weight}
    return packed | ({"qkv, bias": torch.cat(biases)} if biases else {})


def _oriented(name: str, projection: Projection, heads: int) -> dict[str, Tensor]:
    """A weight as (in, out), (out, in) and by head: (H, in, D), of the output (H, D, out) or (H, out, D); its bias."""
    weight, bias = projection
    tensors = {name: weight.t().contiguous(), f"{name}, (out, in)": weight.clone()}
    if bias is not None:
        tensors[f"{name}, bias"] = bias
    if heads:
        axis = 1 if name == "out_proj" else 0
        by_head = weight.unflatten(axis, (heads, -1)).movedim(axis, 0).mT.contiguous()
        tensors |= {f"{name}, by head": by_head, f"{name}, by head, turned": by_head.mT if axis else by_head}
    return tensors


def _calls(
    parameters: Sequence[ArgumentFacts],
    roles: Mapping[str, str],
    values: Mapping[str, Any],
    masks: Sequence[str],
    own: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    masked: Collection[str | None],
    layouts: Sequence[str],
) -> Iterator[CallForm]:
    """Ways to call it: in every layout, with weights as (in, out) and (out, in), with every form of the mask."""
    turned = [one for one in (", (out, in)", ", by head", ", by head, turned") if f"W_query{one}" in tensors]
    others = {p["name"]: p["required"] or p["name"] in own for p in parameters if p["name"] not in roles}
    hides = [name for name in others if name in masked]
    given = {
        n: "lengths" if values[n] == "lengths" else {"value": values[n]} for n in others if others[n] and n in values
    }
    leading = next((i for i, p in enumerate(parameters) if p["name"] in others), len(parameters))
    for layout, orientation, form in product(layouts, ("", *turned), masks or ("",)):
        told = {name: _weights(name, role, layout, orientation, tensors) for name, role in roles.items()}
        masks_given: dict[str, Any] = {name: form or {"value": None} for name in hides if others[name] or form}
        by_name = dict(list(told.items())[leading:])
        for returns in _RETURNS.get(layout, ("",)):
            yield CallForm(tuple(told.values())[:leading], by_name | given | masks_given, layout, form, returns)


def _weights(name: str, role: str, layout: str, orientation: str, tensors: Mapping[str, Tensor]) -> Any:
    """A tensor for an argument; a dict of all weights, or a function, where its name says so."""
    if role in ("x", "q", "k", "v", "source"):
        role = "x" if role == "source" else role
        return role if layout == "batch first" else f"{role}, {layout}"
    if name.lower().startswith("to_"):
        return {"linear": role + orientation}
    if role.endswith(_AND_BIAS):
        role = role.removesuffix(_AND_BIAS)
        return {"dict": {"w": _oriented_name(role, orientation, tensors), "b": f"{role}, bias"}}
    if role != "params":
        return _oriented_name(role, orientation, tensors)
    named = {key: f"{role}{orientation}" for role, keys in _SPELLINGS.items() if role in tensors for key in keys}
    biases = [(role, f"{role}, bias") for role in _SPELLINGS if f"{role}, bias" in tensors]
    named |= {f"{b}{one}": bias for role, bias in biases for b in ("b", "b_") for one in _SPELLINGS[role][:2]}
    together = {f"{w}qkv": f"qkv{orientation}" for w in ("", "w", "W", "w_", "W_")} | {"b_qkv": "qkv, bias"}
    return {"dict": named | {key: one for key, one in together.items() if one in tensors}}


def _oriented_name(role: str, orientation: str, tensors: Mapping[str, Tensor]) -> str:
    """The name of a weight in this orientation; as (in, out) where it has none."""
    return role + orientation if role + orientation in tensors else role


def _as_called(case: Case, layout: str, is_split: bool) -> Case:
    """The case as a call of this layout sees it: without heads, those of head 0 only; without a batch, text 0."""
    D, texts = case.head_dim, 1 if layout == "one text" else None
    if case.qkv is not None and not is_split:
        case = replace(case, x=case.x[..., :D], qkv=tuple(t[..., :D] for t in case.qkv), num_heads=1)
    return replace(case, x=case.x[:texts], qkv=case.qkv and tuple(t[:texts] for t in case.qkv))
