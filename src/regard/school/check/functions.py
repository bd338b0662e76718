"""Functions: attention that a learner writes as a function, of q, k, v; of x and weights; or of x alone.

They are compared with the formula as layers are: an `Experiment` with the same cases, calls and explanations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.formula import QKV, Case, Projection
from regard.mistakes.search import LARGEST, TOLERANCE
from regard.school.check.building import CONTEXT, DROPOUT, HEADS, WIDTH, ProbeSizes
from regard.school.check.calling import MASK, CallForm, mask_forms
from regard.school.check.small_functions import kind_of
from regard.school.check.subject import Observation, Subject
from regard.school.check.values import Experiment, Output, Reading, Request, smallest_explanation
from regard.support.vocabulary import BIAS, HEAD_DIM, WIDTH_IN, WIDTH_OUT

_ROLES = {
    "q": r"q|query|queries|Q",
    "k": r"k|keys?|K",
    "v": r"v|values?|V",
    "W_query": r"(w_?|weights?_?)(q|query|queries)|(q|query)_(w|weights?|proj|matrix)",
    "W_key": r"(w_?|weights?_?)(k|keys?)|(k|key)_(w|weights?|proj|matrix)",
    "W_value": r"(w_?|weights?_?)(v|values?)|(v|value)_(w|weights?|proj|matrix)",
    "out_proj": r"(w_?|weights?_?)(o|out|output)|out_proj|(o|out)_(w|weights?|proj|matrix)",
    "x": r"x|inputs?|embeddings?|tokens?|hidden_states?|seq|X|embs?",
}


def is_known(function: Any) -> bool:
    """Can a function of this name and these arguments be checked?"""
    return is_known_by(function.__name__, list(function.__code__.co_varnames[: function.__code__.co_argcount]))


def is_known_by(name: str, arguments: Sequence[str]) -> bool:
    """The same, for a function that runs elsewhere."""
    return kind_of(name, list(arguments)) != "" or roles_of(arguments, name) is not None


def roles_of(names: Sequence[str], function: str) -> dict[str, str] | None:
    """Which argument is which; None where they are not those of attention."""
    roles: dict[str, str] = {}
    for name in names:
        role = next((role for role, pattern in _ROLES.items() if re.fullmatch(pattern, name, re.IGNORECASE)), None)
        if role is not None and role not in roles.values():
            roles[name] = role
    given = set(roles.values())
    is_attention = re.search(r"att(n|ention|end)|simplified|context", function, re.IGNORECASE)
    if {"q", "k", "v"} <= given or {"x", *QKV} <= given or (given == {"x"} and is_attention):
        return roles
    return None


def function_experiment(
    subject: Subject, sizes: ProbeSizes, seed: int, request: Request, masked: bool = False, most: int = LARGEST
) -> Experiment:
    """Call the function with known tensors, and explain what it gives."""
    parameters = [p for p in subject.described["call"] if p["kind"] in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
    roles = roles_of([p["name"] for p in parameters], subject.described["name"])
    result = Experiment(sizes, Observation({}, [], []))
    if roles is None:
        result.problem = "its arguments are not known; name them q, k, v, or x, W_q, W_k, W_v, or x alone"
        return result
    tensors, case = _tensors(set(roles.values()), parameters, sizes, seed + request.seed, request)
    visible = torch.ones(sizes.T, sizes.T, dtype=torch.bool).tril()
    forms = mask_forms(visible, torch.float64, sizes.B) if masked else {}
    result.tensors = {**tensors, **forms}
    ways, unknown = _calls(parameters, roles, sizes, list(forms), request)
    if unknown:
        result.problem = f"nothing is known of its argument {unknown}; give a value: --set {unknown}=…"
        return result
    seen = subject.run(result.job(calls=[way.as_json() for way in ways]), result.tensors)
    if all(run.failed for run in seen.runs):
        again = subject.run(result.job(calls=[way.as_json() for way in ways], numpy=True), result.tensors)
        seen = seen if all(run.failed for run in again.runs) else again
    result.failed = seen.failure
    expected = _expected(subject, request)
    groups: list[tuple[Reading, Case, list[Output]]] = []
    for layout in ("heads apart", "batch first", "one text"):
        outs = [
            Output(way, out.to(torch.float64))
            for way, run in zip(ways, seen.runs, strict=True)
            if way.layout == layout and not run.failed
            for out in way.outputs(run.outputs, sizes.B, sizes.T)
        ]
        if outs:
            is_split = layout == "heads apart" or any(p["name"] in HEADS for p in parameters)
            cases = [_case(case, layout, is_split, causal, visible if masked else None) for causal in expected]
            groups += [(Reading(None, one.num_heads), one, outs) for one in (cases[:1] if masked else cases)]
    if not groups:
        result.problem = "" if result.failed else "it returns no tensor of the shape of its input"
        return result
    result.failed = None
    return smallest_explanation(result, groups, TOLERANCE, most, request.mistakes)


def _expected(subject: Subject, request: Request) -> tuple[bool, ...]:
    if request.causal is not None:
        return (request.causal,)
    name = subject.described["name"].lower()
    return (True,) if "causal" in name or "masked" in name else (False, True)


def _tensors(
    roles: set[str], parameters: Sequence[Mapping[str, Any]], sizes: ProbeSizes, seed: int, request: Request
) -> tuple[dict[str, Tensor], Case]:
    """The tensors of every call by name, and the case that they are."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    B, H, T, D, d_in = sizes.B, sizes.num_heads, sizes.T, sizes.head_dim, sizes.d_in
    is_multi = any(p["name"] in HEADS for p in parameters)
    if "q" in roles:
        q, k, v = (random(B, H, T, D) for _ in range(3))
        joined = tuple(t.transpose(1, 2).flatten(2) for t in (q, k, v))
        tensors: dict[str, Tensor] = {}
        for name, t, whole in zip("qkv", (q, k, v), joined, strict=True):
            one = whole if is_multi else t[:, 0]  # a function that splits the heads itself gets all of them
            tensors |= {f"{name}, heads apart": t, name: one.clone(), f"{name}, one text": one[0].clone()}
        return tensors, Case(joined[0], num_heads=H, qkv=(joined[0], joined[1], joined[2]))
    x = random(B, T, d_in)
    if not roles & set(QKV):
        x = x * 0.7
        return {"x": x, "x, one text": x[0].clone()}, Case(x, scaled=False)
    width = sizes.width if is_multi else sizes.head_dim
    projections = {name: Projection(random(width, d_in) * 1.5 * d_in**-0.5) for name in QKV}
    if "out_proj" in roles:
        projections["out_proj"] = Projection(random(width, width) * 1.5 * width**-0.5)
    tensors = {"x": x, "x, one text": x[0].clone()}
    for name, (weight, _) in projections.items():
        tensors |= {name: weight.t().contiguous(), f"{name}, (out, in)": weight.clone()}
    return tensors, Case(x, projections, H if is_multi else 1)


def _calls(
    parameters: Sequence[Mapping[str, Any]],
    roles: Mapping[str, str],
    sizes: ProbeSizes,
    masks: Sequence[str],
    request: Request,
) -> tuple[list[CallForm], str]:
    """Ways to call it, and the name of an argument that nobody knows."""
    numbers: dict[str, Any] = {
        **dict.fromkeys(HEADS, sizes.num_heads),
        **dict.fromkeys(HEAD_DIM, sizes.head_dim),
        **dict.fromkeys(WIDTH_IN, sizes.d_in),
        **dict.fromkeys((*WIDTH, *WIDTH_OUT), sizes.width),
        **dict.fromkeys(CONTEXT, sizes.context_length),
        **dict.fromkeys(DROPOUT, 0.0),
        **dict.fromkeys(BIAS, None),
    } | dict(request.own)
    has_heads = "q" in roles.values()
    ways = []
    for layout in ("heads apart", "batch first", "one text") if has_heads else ("batch first", "one text"):
        suffix = {"heads apart": ", heads apart", "one text": ", one text"}.get(layout, "")
        for orientation in ("", ", (out, in)") if roles.keys() and set(QKV) <= set(roles.values()) else ("",):
            for form in masks or ("",):
                args: list[Any] = []
                kwargs: dict[str, Any] = {}
                for p in parameters:
                    name = p["name"]
                    if name in roles:
                        role = roles[name]
                        args.append(role + (suffix if role in ("x", "q", "k", "v") else orientation))
                    elif name.lower() in MASK:
                        if form or p["required"]:
                            kwargs[name] = form or {"value": None}
                    elif name in numbers and (p["required"] or name in request.own):
                        kwargs[name] = {"value": numbers[name]}
                    elif p["required"]:
                        return [], name
                ways.append(CallForm(tuple(args), kwargs, layout, form))
    return ways, ""


def _case(case: Case, layout: str, is_split: bool, causal: bool, mask: Tensor | None) -> Case:
    """The case as a call of this layout sees it: without heads, those of head 0 only; without a batch, text 0."""
    x, qkv, heads = case.x, case.qkv, case.num_heads
    if qkv is not None and not is_split:
        D = case.head_dim
        q, k, v = (t[..., :D] for t in qkv)
        qkv, heads, x = (q, k, v), 1, x[..., :D]
    if layout == "one text":
        x, qkv = x[:1], None if qkv is None else (qkv[0][:1], qkv[1][:1], qkv[2][:1])
    return replace(case, x=x, qkv=qkv, num_heads=heads, causal=causal, mask=mask)
