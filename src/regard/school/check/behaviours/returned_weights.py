"""Returned weights: what a layer returns beside its output must be the weights that the output was made with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.behaviours.probing import CLOSE, call_arguments
from regard.school.check.behaviours.registry import NotChecked, NotOffered, behaviour
from regard.school.check.behaviours.sizes import is_formula_of
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import return_line, steps_of
from regard.school.check.learner_code.protocol import CallJob, Run
from regard.school.check.learner_code.text_hints import stated
from regard.school.check.verdict import Finding, known
from regard.support.vocabulary import WEIGHTS_FLAGS

NOT_USED = known(
    "returned weights are not the weights used",
    "Who plots them sees what the layer did not do. They are the softmax of the masked scores, (B, heads, T, S).",
    "return self.out_proj(context), weights  # the tensor that the values were mixed with",
    "weights",
)
ONE_HEAD = known(
    "returned weights are of one head",
    "Who plots them sees one head and takes it for all; return every head, or the mean.",
    "return self.out_proj(context), weights  # (B, heads, T, S)",
    "weights",
    is_warning=True,
)
MEAN = known(
    "returned weights are the mean over the heads",
    "Who reads that there is one map for each head takes the mean for the first text or the first head.",
    "return self.out_proj(context), weights  # (B, heads, T, S)",
    "weights",
)
DROPPED = known(
    "returned weights are after dropout",
    "In training, dropout sets some to 0 and enlarges the others: the rows of what is left do not sum to 1.",
    "return self.dropout(weights) @ values, weights",
    "weights",
)
# Of what is returned, a docstring says that it is the weights, that their rows sum to 1, or that every head has a map.
_RETURNS = (
    r"(?im)^.*(\b(returns?|retorna|devuelve|renvoie|retourne|gibt|restituisce|zwraca|возвращает)\b|\bforward\(.*->).*"
    r'(?:(?<!""")\n(?!\s*$).+)*'  # up to an empty line
)
_SUMS = r"(?i)before (the )?dropout|without dropout|\bsums? (up )?to (1|one)\b|\bprobability distribution"
_EVERY_HEAD = r"(?i)\b(maps?|weights|matri(x|ces)) (per|(for|of) (each|every)) head|per-head (\w+ )?(maps?|weights)"
_MEAN = r"(?i)mean|averag|m[eéo]di|mittel|moyen|promed"
_WEIGHTS = r"(?i)weights|probabilit|attention maps?\b|pesos|poids|gewichte|pesi\b|веса"
_BY_HEAD = r"\(\s*\w+\s*,\s*\w+\s*,\s*(\w+)\s*,\s*\w+\s*\)"
_SCORES = r"(?i)return\b[^\n]*(score|logit|sim\b|\bqk\b|energy|dots|bias)|[\"']\w*(score|logit)s?\w*[\"']\s*[:\]]"


@behaviour("returned weights", of_functions=True)
def returned_weights(result: Experiment) -> Iterator[Finding]:
    """Are they the softmax of the masked scores, of all heads?"""
    runs = _runs(result)
    maps = [one for run in runs for one in _maps(result, run)]
    is_asked = _has_flag(result) and not _maps(result, runs[0])
    if not maps:
        raise NotOffered
    if not is_formula_of(result):
        if not result.is_right:
            raise NotOffered  # wrong weights are returned of a wrong layer
        if not all(_sums_to_one(one) for one in maps):
            raise NotChecked("their rows do not sum to 1")
        return
    line = return_line(result.subject.source, result.seen.with_lines)
    steps = steps_of(result.case, (), result.out)
    findings = [_compared(result, steps, one, line, is_asked) for one in maps]
    findings += _with_a_mask(result, line, is_asked)
    if any(not _sums_to_one(one) for run in _runs(result, train=True) for one in _maps(result, run)):
        is_said = re.search(_SUMS, _said(result)) is not None
        findings += [DROPPED.found("In train(), their rows do not sum to 1.", line)] if is_said else []
    yield from [one for one in findings if one is not None][:1]


def _with_a_mask(result: Experiment, line: int, is_asked: bool) -> list[Finding | None]:
    """The same where it is given a mask."""
    masked = result.masked
    if masked is None or not masked.is_right:
        return []
    steps = steps_of(masked.case, (), masked.out)
    return [_compared(masked, steps, one, line, is_asked) for run in _runs(masked)[:2] for one in _maps(masked, run)]


def _sums_to_one(one: Tensor) -> bool:
    return bool((one >= 0).all()) and same(one.sum(-1), torch.ones_like(one[..., 0]), CLOSE)


def _said(result: Experiment) -> str:
    """What the text of the code says of what is returned."""
    return "\n".join(match[0] for match in re.finditer(_RETURNS, stated(result.text, "")))


def _compared(result: Experiment, steps: dict[str, Tensor], one: Tensor, line: int, is_asked: bool) -> Finding | None:
    """What is wrong with a tensor that may be the weights."""
    forms, heads = [form for form in _forms(steps["weights"]) if form.shape == one.shape], steps["weights"].unbind(1)
    if not forms:
        raise NotChecked(f"of the shape {tuple(one.shape)}")
    said, documented = _said(result), "".join(result.text.split('"""')[1::2])
    if any(same(form, one, CLOSE) for form in forms):
        is_mean = len(heads) > 1 and one.dim() == 3 and same(steps["weights"].mean(1), one, CLOSE)
        is_said = re.search(_BY_HEAD, said) or re.search(_EVERY_HEAD, documented)
        is_wrong = is_mean and is_said and not re.search(_MEAN, said + documented)
        return MEAN.found(f"They are the mean of {len(heads)} heads.", line) if is_wrong else None
    if any(same(head, one, CLOSE) for head in heads if head.shape == one.shape):
        return ONE_HEAD.found(f"They are those of one of {len(heads)} heads.", line)
    what = _wrong_form(result, steps, one)
    is_meant = not is_asked and _says_scores(result, said) and what.startswith("They are the scores")
    return None if is_meant else NOT_USED.found(what, line)


def _says_scores(result: Experiment, said: str) -> bool:
    return re.search(_SCORES, result.text) is not None and not re.search(_WEIGHTS, said)


def _has_flag(result: Experiment) -> bool:
    return any(name in WEIGHTS_FLAGS for name in call_arguments(result))


def _runs(result: Experiment, train: bool = False) -> list[Run]:
    """As it is called, with every flag that asks for weights, and with a dropout that must not act in eval()."""
    flags = {name: {"value": True} for name in call_arguments(result) if name in WEIGHTS_FLAGS}
    call = result.call.as_json()
    calls: list[CallJob] = [call, {"args": call["args"], "kwargs": {**call["kwargs"], **flags}, "fresh": True}]
    calls = calls[: 2 if flags else 1]
    if train:
        return result.with_dropout(1, calls=calls, train=True).runs
    return [*result.run(calls=calls).runs, *result.with_dropout(1, calls=calls).runs]


def _maps(result: Experiment, run: Run) -> list[Tensor]:
    """The tensors of a result that may be weights; those of one shape, as of a list of heads, in one."""
    T = result.sizes.T
    shapes: dict[torch.Size, list[Tensor]] = {}
    for t in run.outputs if run.failed is None else ():
        is_map = t.is_floating_point() and 2 <= t.dim() <= 4 and t.shape[-2:] == (T, T)
        if is_map and len(t.unique()) > 2:  # a mask has two numbers
            shapes.setdefault(t.shape, []).append(t.to(torch.float64))
    heads = result.case.num_heads
    return [torch.stack(same, dim=-3) if len(same) == heads > 1 else same[0] for same in shapes.values()]


def _forms(weights: Tensor) -> Iterator[Tensor]:
    """(B, H, T, S) in every usual form: heads first, heads and texts as one axis, the mean, one text or one head."""
    by_head = weights.transpose(0, 1)
    for one in (
        weights,
        by_head,
        weights.flatten(0, 1),
        by_head.flatten(0, 1),
        weights.mean(1),
        weights.mean(1)[:, None],
    ):
        yield from (one, one[0]) if len(one) == 1 or one is weights else (one,)
    if weights.shape[1] == 1:
        yield weights[:, 0]


def _wrong_form(result: Experiment, steps: dict[str, Tensor], one: Tensor) -> str:
    """What they are instead, in words."""
    weights, scaled, hidden = steps["weights"], steps["scaled"], ~steps["mask"]
    unmasked = steps_of(replace(result.case, causal=False, mask=None), ())["weights"]
    tries = {
        "They are transposed: row i is what token i gets, not what it looks at.": [weights.mT],
        "They are taken before the mask: they show tokens that the output does not see.": [unmasked],
        "They are the scores, before the softmax.": [steps["scores"], scaled, scaled.masked_fill(hidden, -torch.inf)],
        "They are those of one head, in the place of every head.": [
            head[:, None].expand_as(weights) for head in weights.unbind(1)
        ],
    }
    for says, tensors in tries.items():
        if any(form.shape == one.shape and same(form, one, CLOSE) for t in tensors for form in _forms(t)):
            return says
    rows = one.sum(-1)
    if not same(rows, torch.ones_like(rows), CLOSE):
        return "Their rows do not sum to 1."
    return "The output was made with other weights."
