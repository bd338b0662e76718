"""Reasons: why a module computes something else than the layer that was planned for it.

Each reason is a function that tries one explanation: it builds the layer with the module's presumed mistake, or option,
and says so where the two then agree. A new reason is a new function in REASONS.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from regard.adoption.layouts import find_projections, names_of, sizes_of, state_of
from regard.adoption.trial import Trial, run_module
from regard.mistakes.formula import Case, Projection
from regard.mistakes.mistake import written_in
from regard.mistakes.search import MISTAKES, TOLERANCE, explanations


def explain_difference(trial: Trial) -> ValueError:
    """By how much module and layer differ and, where a reason is found, why."""
    theirs, ours = run_module(trial.module, trial.x).out, trial.layer()(trial.x)
    who = trial.plan.who
    if theirs.shape != ours.shape:
        return ValueError(
            f"{who} turns {sizes_of(trial.x)} into {sizes_of(theirs)}, but the weights that were found make "
            f"{sizes_of(ours)}; adopt the attention alone, or say which weights are its with names"
        )
    gap, size = (ours - theirs).abs().max(), theirs.abs().max()
    reason = next((text for find in REASONS if (text := find(trial))), None)
    return ValueError(
        f"{who} computes something else: outputs differ by {gap:.2g}, where they reach {size:.2g}. "
        + (reason or "No known variant matches: look for positions, norms or a residual in its forward")
    )


def answers_differently(trial: Trial) -> str | None:
    """Dropout that also acts in eval()."""
    first, second = (run_module(trial.module, trial.x).out for _ in range(2))
    if torch.allclose(first, second, rtol=0, atol=0, equal_nan=True):
        return None
    return "Run twice in eval() it answers differently; use nn.Dropout, or pass training=self.training"


def other_scale_or_causality(trial: Trial) -> str | None:
    """Another scale than the plan's, the future hidden or seen, or both."""
    layer, causal = trial.layer(), not trial.plan.causal
    D, d_out = layer.head_dim, layer.d_out
    scales: list[tuple[Any, str, str]] = [
        (None, f"divided by √head_dim (√{D})", "leave scale out"),
        (d_out**-0.5, f"divided by √d_out (√{d_out}), not √head_dim (√{D})", f"pass scale={d_out} ** -0.5"),
        (1.0, f"not scaled, instead of divided by √head_dim (√{D})", "pass scale=1.0"),
        (1 / D, f"divided by head_dim ({D}), not by its root", f"pass scale=1 / {D}"),
    ]
    future, remedy = f"it {'hides' if causal else 'sees'} the future", f"leave causal out or pass causal={causal}"
    alone = [({"scale": scale}, f"its scores are {how}", do) for scale, how, do in scales]
    both = [({"causal": causal} | one, f"{future}, and {how}", f"{remedy}, and {do}") for one, how, do in alone]
    for changes, meaning, do in (*alone, ({"causal": causal}, future, remedy), *both):
        if trial.agrees(**changes):
            return f"The reason: {meaning}; {do} to take it over as it is, or correct the module"
    return None


def known_mistake(trial: Trial) -> str | None:
    """One of the mistakes that `check` names, or two of them."""
    plan, x = trial.plan, trial.x
    if plan.scale is not None:
        return None
    parts = find_projections(plan, state_of(trial.module))
    projections = {name: Projection(weight, bias) for name, (weight, bias) in parts.items()}
    out = run_module(trial.module, x).out
    cases = [Case(x, projections, plan.num_heads, causal) for causal in (True, False)]
    tried = written_in(_source_of(trial.module), MISTAKES)
    found = [
        (case, variants[0]) for case in cases if (variants := explanations(case, out, TOLERANCE, tried)) and variants[0]
    ]
    if not found:
        return None
    case, variant = min(found, key=lambda one: len(one[1]))
    reasons = (f"{one.name}. {one.describe(case)} Right is {one.fix}" for one in variant)
    return f"The reason: {'; and '.join(reasons)}"


def _source_of(module: nn.Module) -> str:
    """The file that its class is in, with its helpers; empty where there is none, as for code typed at a prompt."""
    file = inspect.getmodule(type(module))
    try:
        return inspect.getsource(file) if file is not None else ""
    except (OSError, TypeError):
        return ""


def other_parameters(trial: Trial) -> str | None:
    """Parameters that the layer has no place for."""
    state = state_of(trial.module)
    used = {name for stem in trial.plan.stems.values() for name in names_of(state, stem)}
    unused = [name for name, _ in trial.module.named_parameters() if name not in used]
    if not unused:
        return None
    return (
        f"It also has {', '.join(unused[:12])}, for which this layer has no place; "
        'if one of them is the output projection, pass names={"out_proj": …}'
    )


REASONS = (answers_differently, other_scale_or_causality, known_mistake, other_parameters)
