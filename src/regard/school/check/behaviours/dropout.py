"""Dropping: dropout that also acts in eval(), never acts, or acts on a tensor on which it does harm."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.behaviours.probe import Situation, line_with
from regard.school.check.compare.constructor_arguments import DROPOUT, has_config, takes
from regard.school.check.explain.mistake_lines import CLOSE, holds, steps_of
from regard.school.check.verdict import Finding
from regard.traces.arrangements import Numbers


def random_in_eval(situation: Situation) -> Iterator[Finding]:
    """Dropout that also acts in eval(); or another source of chance."""
    outs = situation.outputs(situation.run(2, seeds=True))
    if len(outs) == 2 and not same(outs[0], outs[1]):
        yield Finding("", "In eval(), the same input gives another output each time, and dropout is not the reason.")
        return
    seen = situation.with_dropout(2)
    outs = situation.outputs(seen)
    if len(outs) == 2 and not same(outs[0], outs[1]):
        yield Finding(
            "dropout active in eval",
            "After eval(), dropout still acts: the same input gives another output each time.",
            "Dropout is for training; F.dropout and scaled_dot_product_attention do not know of eval() by themselves.",
            "weights = F.dropout(weights, p, training=self.training)  # or nn.Dropout",
            step="dropout",
            line=seen.dropped[0].line if seen.dropped else 0,
        )


def dropout_in_training(situation: Situation) -> Iterator[Finding]:
    """Dropout that never acts, or acts on a tensor on which it does harm."""
    described, contents = situation.subject.described, situation.result.observation.contents
    is_built = situation.subject.is_built
    by_config = has_config(described) and bool(contents.get("dropouts"))
    asked = not is_built and (takes(described, DROPOUT) or by_config)
    if not asked and not contents.get("dropouts"):
        return
    seen = situation.with_dropout(2, train=True)
    outs = situation.outputs(seen)
    if len(outs) < 2:
        return
    if same(outs[0], outs[1]) and not (seen.dropped and bool(outs[0].isnan().all())):  # NaN hides what dropout does
        if asked or any(contents.get("dropouts", ())):
            lost = " What it returns is not used." if seen.dropped else " It is not applied."
            yield Finding(
                "dropout never active",
                f"In train(), with dropout=0.5, the same input gives the same output each time.{lost}",
                "Dropout sets some weights to 0 while training, so that no token depends on a single other.",
                "weights = self.dropout(weights)  # after the softmax",
                step="dropout",
                line=seen.dropped[0].line if seen.dropped else _used_line(situation),
            )
        return
    first = seen.dropped[0] if seen.dropped else None
    where = _dropped_step(situation, first.value) if first is not None and first.value.numel() else ""
    if where and first is not None:
        yield Finding(
            "dropout on the wrong tensor",
            f"Dropout acts on {where}; it acts on the weights, after the softmax.",
            "A score of 0 is not hidden, exp(0) = 1; a weight of 0 is. Dropped queries, keys or inputs are other vectors.",
            "weights = self.dropout(torch.softmax(scores, dim=-1))",
            step="dropout",
            line=first.line,
        )


def _used_line(situation: Situation) -> int:
    """Where the weights are used, which is where dropout is missing; else where dropout is made."""
    result = situation.result
    assert result.case is not None
    seen = situation.record()
    steps = steps_of(result.case, result.variants[0] if result.variants else (), result.out)
    calls = [call for call in seen.recorded[seen.built :] if call.line and call.value.is_floating_point()]
    used = (call.line for call in calls if "context" in steps and holds(Numbers(call.value, **CLOSE), steps["context"]))
    made = r"self\.\w*drop\w*\s*=|self\.\w+\s*=.*drop"
    return next(used, 0) or line_with(situation.subject.source, made)


def _dropped_step(situation: Situation, value: Tensor) -> str:
    """The step on which dropout acts, where that is wrong; "" where it is right or unknown."""
    result = situation.result
    assert result.case is not None
    steps = steps_of(result.case, result.variants[0] if result.variants else (), result.out)
    mine = Numbers(value, rtol=1e-4, atol=1e-6)

    def has(t: Tensor, hidden: bool = True) -> bool:
        other = Numbers(t, rtol=1e-4, atol=1e-6)
        return mine.find(other, ordered=True, hidden=hidden) or (
            len(mine.sizes) > 1 and mine.part_of(other, ordered=True)
        )

    if not value.is_floating_point() or any(has(steps[n]) for n in ("weights", "context", "concat", "out")):
        return ""
    if has(steps["scores"], hidden=False) or has(steps["scaled"], hidden=False):
        return "the scores, before the softmax"
    for name in ("queries", "keys", "values"):
        if has(steps[name]):
            return f"the {name}"
    return "x" if has(result.case.x) else ""
