"""Reasons: why a module computes something else than the layer that was planned for it.

Each reason is a function that tries one explanation: it builds the layer with the module's presumed mistake, or option,
and says so where the two then agree. A new reason is a new function in REASONS.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.adoption.layouts import bias_names, weight_name
from regard.adoption.plan import shape_of, state_of
from regard.adoption.trial import Trial, run_module
from regard.attention.attend import attend


def explain_difference(trial: Trial) -> ValueError:
    """By how much module and layer differ and, where a reason is found, why."""
    theirs, ours = run_module(trial.module, trial.x).out, trial.layer()(trial.x)
    who = trial.plan.who
    if theirs.shape != ours.shape:
        return ValueError(
            f"{who} turns {shape_of(trial.x)} into {shape_of(theirs)}, but the weights that were found make "
            f"{shape_of(ours)}; adopt the attention alone, or say which weights are its with names"
        )
    gap, size = (ours - theirs).abs().max(), theirs.abs().max()
    reason = next((text for find in REASONS if (text := find(trial))), None)
    return ValueError(
        f"{who} computes something else: outputs differ by {gap:.2g}, where they reach {size:.2g}. "
        + (reason or "No known variant matches: look for positions, norms or a residual in its forward")
    )


def random_in_eval(trial: Trial) -> str | None:
    """Dropout that also acts in eval()."""
    first, second = (run_module(trial.module, trial.x).out for _ in range(2))
    if first.equal(second):
        return None
    return "Run twice in eval() it answers differently; use nn.Dropout, or pass training=self.training"


class Scale(NamedTuple):
    """A scale that people use, what it means for the scores, and how to adopt a module that uses it."""

    value: float | None
    meaning: str
    remedy: str


def other_scale_or_causality(trial: Trial) -> str | None:
    """Another scale than the plan's, the future hidden or seen, or both."""
    plan = trial.plan
    scales = _scales(trial)
    for scale in scales:
        if trial.agrees(scale=scale.value):
            return _as_it_is(scale.meaning, scale.remedy)
    causal = not plan.causal
    meaning = f"it {'hides' if causal else 'sees'} the future"
    remedy = f"leave causal out or pass causal={causal}"
    if trial.agrees(causal=causal):
        return _as_it_is(meaning, remedy)
    for scale in scales:
        if trial.agrees(causal=causal, scale=scale.value):
            return _as_it_is(f"{meaning}, and {scale.meaning}", f"{remedy}, and {scale.remedy}")
    return None


def masked_after_softmax(trial: Trial) -> str | None:
    """Weights of the future set to 0 after the softmax, instead of scores to −∞ before it."""
    layer = trial.layer(causal=False)
    _, weights = layer(trial.x, return_weights=True)
    values = layer.W_value(trial.x).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
    values = values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
    out = layer.out_proj((weights.tril() @ values).transpose(1, 2).flatten(2))
    if not run_module(trial.module, trial.x).is_close_to(out):
        return None
    return "The reason: it hides the future after the softmax, so rows no longer sum to 1; put −∞ before it"


def missing_transpose(trial: Trial) -> str | None:
    """Heads split by view(B, H, T, D), or joined before the tokens are first again: right shapes, mixed tokens."""
    (B, T), answer = trial.x.shape[:2], run_module(trial.module, trial.x)
    split = "it splits by view(B, H, T, D), which mixes tokens; write view(B, T, H, D).transpose(1, 2)"
    join = "it joins the heads as (B, H, T, D), which mixes tokens; write transpose(1, 2).contiguous() before view"
    for causal in (True, False):
        layer = trial.layer(causal=causal)
        projected = [W(trial.x) for W in (layer.W_query, layer.W_key, layer.W_value)]
        for reasons in ((split,), (join,), (split, join)):
            q, k, v = (
                t.view(B, -1, T, layer.head_dim)
                if split in reasons
                else t.view(B, T, -1, layer.head_dim).transpose(1, 2)
                for t in projected
            )
            context = attend(q, k, v, mask=layer.rule, scale=layer.scale)
            joined = context.reshape(B, T, -1) if join in reasons else context.transpose(1, 2).flatten(2)
            if answer.is_close_to(layer.out_proj(joined)):
                return f"The reason: {', and '.join(reasons)}"
    return None


def other_parameters(trial: Trial) -> str | None:
    """Parameters that the layer has no place for."""
    state = state_of(trial.module)
    used = {name for stem in trial.plan.stems.values() for name in (weight_name(state, stem), *bias_names(stem))}
    unused = [name for name, _ in trial.module.named_parameters() if name not in used]
    if not unused:
        return None
    return (
        f"It also has {', '.join(unused[:12])}, for which this layer has no place; "
        'if one of them is the output projection, pass names={"out_proj": …}'
    )


REASONS = (random_in_eval, other_scale_or_causality, masked_after_softmax, missing_transpose, other_parameters)


def _scales(trial: Trial) -> list[Scale]:
    layer = trial.layer()
    D, d_out = layer.head_dim, layer.d_out
    return [
        Scale(None, f"its scores are divided by √head_dim (√{D})", "leave scale out"),
        Scale(
            d_out**-0.5,
            f"its scores are divided by √d_out (√{d_out}), not √head_dim (√{D})",
            f"pass scale={d_out} ** -0.5",
        ),
        Scale(1.0, f"its scores are not scaled, instead of divided by √head_dim (√{D})", "pass scale=1.0"),
        Scale(1 / D, f"its scores are divided by head_dim ({D}), not by its root", f"pass scale=1 / {D}"),
    ]


def _as_it_is(meaning: str, remedy: str) -> str:
    return f"The reason: {meaning}; {remedy} to take it over as it is, or correct the module"
