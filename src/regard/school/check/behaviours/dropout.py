"""Dropout that also acts in eval(), never acts, or acts on a tensor on which it does harm."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.compare.constructor_arguments import DROPOUT, has_config, takes
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import CLOSE, holds, line_with, steps_of
from regard.school.check.verdict import Finding, known
from regard.traces.arrangements import Numbers

IN_EVAL = known(
    "dropout active in eval",
    "Dropout is for training; F.dropout and scaled_dot_product_attention do not know of eval() by themselves.",
    "weights = F.dropout(weights, p, training=self.training)  # or nn.Dropout",
    "dropout",
)
NEVER = known(
    "dropout never active",
    "Dropout sets some weights to 0 while training, so that no token depends on a single other.",
    "weights = self.dropout(weights)  # after the softmax",
    "dropout",
)
MISPLACED = known(
    "dropout on the wrong tensor",
    "A score of 0 is not hidden, exp(0) = 1; a weight of 0 is. Dropped queries, keys or inputs are other vectors.",
    "weights = self.dropout(torch.softmax(scores, dim=-1))",
    "dropout",
)


def random_in_eval(result: Experiment) -> Iterator[Finding]:
    """Dropout that also acts in eval(); or another source of chance."""
    outs = result.outputs(result.run(2, seeds=True))
    if len(outs) == 2 and not same(outs[0], outs[1]):
        yield Finding("", "In eval(), the same input gives another output each time, and dropout is not the reason.")
        return
    seen = result.with_dropout(2)
    outs = result.outputs(seen)
    if len(outs) == 2 and not same(outs[0], outs[1]):
        says = "After eval(), dropout still acts: the same input gives another output each time."
        yield IN_EVAL.found(says, seen.dropped[0].line if seen.dropped else 0)


def dropout_in_training(result: Experiment) -> Iterator[Finding]:
    """Dropout that never acts, or acts on a tensor on which it does harm."""
    described, dropouts = result.subject.described, result.observation.contents.get("dropouts", [])
    by_config = has_config(described) and bool(dropouts)
    is_asked = not result.subject.is_built and (takes(described, DROPOUT) or by_config)
    if not is_asked and not dropouts:
        return
    seen = result.with_dropout(2, train=True)
    outs, first = result.outputs(seen), seen.dropped[0] if seen.dropped else None
    if len(outs) < 2:
        return
    if not same(outs[0], outs[1]) or (first and bool(outs[0].isnan().all())):  # NaN hides what dropout does
        where = _dropped_step(result, first.value) if first else ""
        if first and where:
            yield MISPLACED.found(f"Dropout acts on {where}; it acts on the weights, after the softmax.", first.line)
    elif is_asked or any(dropouts):
        lost = "What it returns is not used." if first else "It is not applied."
        says = f"In train(), with dropout=0.5, the same input gives the same output each time. {lost}"
        yield NEVER.found(says, first.line if first else _used_line(result))


def _used_line(result: Experiment) -> int:
    """Where the weights are used, which is where dropout is missing; else where dropout is made."""
    context = steps_of(result.case, result.first, result.out).get("context")
    made = line_with(result.subject.source, r"self\.\w*drop\w*\s*=|self\.\w+\s*=.*drop")
    if context is None:
        return made
    calls = [call for call in result.seen.with_lines if call.value.is_floating_point()]
    return next((call.line for call in calls if holds(Numbers(call.value, **CLOSE), context)), made)


def _dropped_step(result: Experiment, value: Tensor) -> str:
    """The step on which dropout acts, where that is wrong; "" where it is right or unknown."""
    if not value.numel() or not value.is_floating_point():
        return ""
    steps, mine = steps_of(result.case, result.first, result.out), Numbers(value, **CLOSE)
    if any(holds(mine, steps[name]) for name in ("weights", "context", "concat", "out")):
        return ""
    if any(holds(mine, steps[name], hidden=False) for name in ("scores", "scaled")):
        return "the scores, before the softmax"
    named = (f"the {name}" for name in ("queries", "keys", "values") if holds(mine, steps[name]))
    return next(named, "x" if holds(mine, result.case.x) else "")
