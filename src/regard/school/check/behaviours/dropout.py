"""Dropout that also acts in eval(), never acts, or acts on a tensor on which it does harm."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.behaviours.configuration import with_value
from regard.school.check.behaviours.probing import Probe
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.behaviours.sizes import is_formula_of
from regard.school.check.compare.constructor_arguments import DROPOUT, guess_role, has_config, settings_of, takes
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import CLOSE, holds, line_with, steps_of
from regard.school.check.learner_code.protocol import Dropped
from regard.school.check.learner_code.subject import InsideSubject, is_class
from regard.school.check.learner_code.text_hints import stated
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import KEPT
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

KEEP = known(
    "keep probability used as drop probability",
    "In torch, p is the share that is dropped: nn.Dropout(0.1) keeps nine of ten.",
    "self.dropout = nn.Dropout(dropout)",
    "dropout",
)
NOT_SCALED = known(
    "dropout without rescaling",
    "What is kept is divided by 1 − p, so that the mean stays; otherwise the layer is weaker in training than later.",
    "weights = F.dropout(weights, p, training=self.training)  # or weights * keep / (1 - p)",
    "dropout",
)
FIXED = known(
    "dropout argument is ignored",
    "Who sets it to 0 gets dropout all the same.",
    "self.dropout = nn.Dropout(dropout)",
    "dropout",
)
SHARED = known(
    "dropout mask is shared",
    "Dropout draws for every weight by itself; with one draw for all texts, heads or tokens, all lose the same.",
    "weights = F.dropout(weights, p, training=self.training)  # or torch.rand_like(weights) < 1 - p",
    "dropout",
)
_LOW, _MANY = 0.2, 400
_SHARES = r"(?i)broadcast|shared|variational|locked|structured"  # who shares on purpose says so


@behaviour("eval()")
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


@behaviour("dropout")
def dropout_in_training(result: Experiment) -> Iterator[Finding]:
    """Dropout that never acts, acts on a tensor on which it does harm, or by another share than it was told."""
    dropouts = result.observation.contents.get("dropouts", [])
    is_asked = _is_asked(result, bool(dropouts))
    if not is_asked and not dropouts:
        raise NotOffered
    seen = result.with_dropout(2, train=True)
    outs, first = result.outputs(seen), seen.dropped[0] if seen.dropped else None
    if len(outs) < 2:
        raise NotChecked("it fails in train()")
    if not same(outs[0], outs[1]) or (first and bool(outs[0].isnan().all())):  # NaN hides what dropout does
        if misplaced := _misplaced(result, seen.dropped):
            yield misplaced
        elif finding := _from_another_field(result):
            yield finding
        elif is_formula_of(result) and not isinstance(result.subject, InsideSubject):
            yield from _share(result)
    elif is_asked or any(dropouts):
        yield _never(result, first)


def _misplaced(result: Experiment, dropped: Sequence[Dropped]) -> Finding | None:
    """Dropout on another tensor than the weights or, where nothing but the formula is right, on the output, too."""
    if dropped and (where := _dropped_step(result, dropped[0].value)):
        says = f"Dropout acts on {where}; it acts on the weights, after the softmax."
        return MISPLACED.found(says, dropped[0].line)
    for one in dropped:
        if result.request.plain and one.value.shape == result.out.shape:
            return MISPLACED.found("Dropout acts on the output, too; it acts on the weights alone.", one.line)
    return None


def _from_another_field(result: Experiment) -> Finding | None:
    """Of several dropouts, another one than that of the attention weights acts on these."""
    settings = settings_of(result.subject.described, result.subject.source)
    paths = [one.path for one in settings if guess_role(one.path[-1]) == "dropout" and type(one.default) is not bool]
    own = [path for path in paths if re.search(r"(?i)att", path[-1])]
    others = [path for path in paths if path not in own]
    if not is_class(result.subject) or not own or not others:
        return None
    lines = []
    for some in (own, others):
        built = arguments_with(result.built.arguments or {}, 0.0)
        for path in paths:
            built = with_value(built, path, 0.5 if path in some else 0.0)
        seen = result.run(build=built, train=True, drops=True)
        lines.append([one.line for one in seen.dropped if _is_weights(one.value)])
    if lines[0] or not lines[1]:
        return None
    names = [path[-1] for path in others]
    says = f"With {own[0][-1]}=0.5 alone, no attention weights are dropped; with {' and '.join(names)}=0.5 they are."
    return FIXED.found(says, line_with(result.subject.source, rf"[.\[(].*({'|'.join(names)})"))


def _is_weights(value: Tensor) -> bool:
    """Is it attention weights, whose rows have the sum 1? Those of the fused kernel are not shown."""
    is_square = value.dim() > 1 and value.shape[-1] == value.shape[-2]
    return not value.numel() or (is_square and bool(((value.sum(-1) - 1).abs() < 1e-4).all()))


def _never(result: Experiment, first: Dropped | None) -> Finding:
    lost = "What it returns is not used." if first else "It is not applied."
    says = f"In train(), with dropout=0.5, the same input gives the same output each time. {lost}"
    return NEVER.found(says, first.line if first else _used_line(result))


def _is_asked(result: Experiment, has_dropout: bool) -> bool:
    """Was it built with an argument for dropout?"""
    described = result.subject.described
    by_config = has_config(described) and has_dropout
    return not result.subject.is_built and (takes(described, (*DROPOUT, *KEPT)) or by_config)


def _share(result: Experiment) -> Iterator[Finding]:
    """How many weights are dropped, and whether the others grow for it: the mean over many runs is the output."""
    built, described = result.built.arguments, result.subject.described
    if built is None or not (takes(described, (*DROPOUT, *KEPT)) or _config_has_dropout(result)):
        return
    name = next((p["name"] for p in described.get("build", ()) if p["name"] in (*DROPOUT, *KEPT)), "dropout")
    few, many = (1 - _LOW, _LOW) if _is_kept(result, name) else (_LOW, 1 - _LOW)
    outs = [out for p in (0.0, _LOW, 1 - _LOW) if (out := _dropped_with(result, p)) is not None]
    line = line_with(result.subject.source, r"self\.\w*(drop|keep)\w*\s*=|self\.p\s*=")
    if len(outs) < 3:
        raise NotChecked("it fails with another dropout")
    (off, low, high), spread = outs, [float(one.var(0).mean()) for one in outs]
    plain = off.mean(0)
    if spread[0] > 1e-6 * max(spread) and not float((low - high).abs().max()):
        yield FIXED.found(f"With {name}={few:.1f} and with {name}={many:.1f} it drops the same.", line)
    elif spread[1] > 4 * spread[2]:
        fix = f"self.dropout = nn.Dropout(1 - {name})" if few > many else KEEP.fix
        yield KEEP.found(f"With {name}={few:.1f} more is dropped than with {name}={many:.1f}.", line, fix=fix)
    else:
        kept = float((low.mean(0) * plain).sum() / plain.square().sum())
        findings = list(_mean(result, name, few, kept, line))
        yield from findings
        if not findings and spread[0] <= 1e-6 * float(plain.square().mean()):
            yield from _shared(result, plain, line)


def _mean(result: Experiment, name: str, few: float, kept: float, line: int) -> Iterator[Finding]:
    """The mean of many runs with a low dropout, as a part of the output without dropout."""
    line = line_with(result.subject.source, r"rand|bernoulli") or line
    if abs(kept - (1 - _LOW)) < 0.04:
        says = f"With {name}={few:.1f}, the mean output of many runs is {kept:.2f} of the output without dropout."
        yield NOT_SCALED.found(says, line)
    elif abs(kept - _LOW / (1 - _LOW)) < 0.06 and few < 0.5:
        says = f"With {name}={few:.1f}, so much is kept, not dropped: the mean of many runs is {kept:.2f} of it."
        yield KEEP.found(says, line)


def _shared(result: Experiment, plain: Tensor, line: int) -> Iterator[Finding]:
    """One draw for many weights. All tokens are the same: a head gives its value times the sum of its kept weights."""
    same_tokens = result.tensors["x"][:1, :1].expand_as(result.tensors["x"][:1])
    outs = _dropped_with(result, 1 - _LOW, same_tokens)
    if outs is None or re.search(_SHARES, result.text) or result.call.layout == "one text":
        return
    size = 1e-6 * float(plain.square().mean())
    sizes = torch.linalg.svdvals(outs.flatten(0, 1))
    is_random = float((outs - outs.mean((0, 1))).square().mean()) > size
    shared = {
        "texts": is_random and float(outs.var(0).mean()) < size,
        "tokens": is_random and not result.case.causal and float(outs.var(1).mean()) < size,
        "heads": result.case.num_heads > 1 and float(sizes[1]) < 1e-4 * float(sizes[0]),
    }
    if of := [name for name, is_shared in shared.items() if is_shared]:
        says = f"All {' and all '.join(of)} lose the same weights: one mask is drawn for them."
        yield SHARED.found(says, line_with(result.subject.source, r"rand|bernoulli") or line)


def _is_kept(result: Experiment, name: str) -> bool:
    """Is an argument the share that is kept? Its name says so, or the text of the code where the name says nothing."""
    says = rf"(?im)^\W*{re.escape(name)}\b(?!.*(1 ?-|drop|zero)).*\b(keep\w*|kept|retain\w*)\b"
    return name in KEPT or ("drop" not in name and re.search(says, stated(result.text, "")) is not None)


def _config_has_dropout(result: Experiment) -> bool:
    """Has the configuration in the file a field for dropout?"""
    names = "|".join((*DROPOUT, *KEPT))
    return has_config(result.subject.described) and line_with(result.subject.source, rf"^\s*({names})\s*:\s*float") > 0


def _dropped_with(result: Experiment, p: float, x: Tensor | None = None) -> Tensor | None:
    """(N, T, width): outputs in train() of equal texts, of a layer without biases that is built with this dropout."""
    arguments = result.built.arguments or {}
    chosen = arguments_with(arguments, p, [name for name in arguments if _is_kept(result, name)])
    x = result.tensors["x"][:1] if x is None else x
    zero = {name: t * 0 for name, t in result.tensors.items() if name.startswith("state.") and "bias" in name}
    probe, is_alone = Probe(result, tensors=zero), result.call.layout == "one text"
    for _ in range(_MANY if is_alone else 1):
        probe.add(x if is_alone else x.expand(_MANY, -1, -1), used=True)
    outs = [out for out in probe.run(build=chosen, train=True, drops=True, seeds=True) if out is not None]
    return torch.cat(outs) if len(outs) == len(probe.calls) else None


def arguments_with(built: Mapping[str, Any], dropout: float, kept: Collection[str] = KEPT) -> dict[str, Any]:
    """The arguments of a constructor with another dropout, in a configuration too. kept: shares that are kept."""
    shares = {**dict.fromkeys(DROPOUT, dropout), **dict.fromkeys((*KEPT, *kept), 1 - dropout)}
    return {
        name: arguments_with(one, dropout, kept) if isinstance(one, dict) else shares.get(name, one)
        for name, one in built.items()
    }


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
    if holds(mine, steps["weights"]):
        return ""
    if later := [name for name in ("context", "concat", "out") if holds(mine, steps[name])]:
        return f"the {later[-1]}" * result.request.plain
    if any(holds(mine, steps[name], hidden=False) for name in ("scores", "scaled")):
        return "the scores, before the softmax"
    if result.case.causal and set(value.unique().tolist()) == {0.0, 1.0}:
        return "the mask"
    is_adapter = re.search(r"(?i)lora|adapter|low.?rank", result.text) is not None  # of which x may be dropped
    named = (f"the {name}" for name in ("queries", "keys", "values") if holds(mine, steps[name]))
    return next(named, "x" if holds(mine, result.case.x) and not is_adapter else "")
