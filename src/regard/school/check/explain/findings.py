"""Findings: what an experiment showed, in words and in numbers that a person can follow.

Code may be right in one reading and wrong in the other: then its own text says which is meant.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from regard.mistakes.formula import Case
from regard.mistakes.mistake import Mistake
from regard.mistakes.search import LARGEST, WITHOUT_MASK, Variant, explanations_of_size, outputs, same
from regard.school.check.compare.attempts import other_attempts
from regard.school.check.compare.call_forms import LAYOUTS, CallForm
from regard.school.check.compare.experiment import Attempt, Experiment, experiment
from regard.school.check.explain import code_mistakes
from regard.school.check.explain.code_mistakes import NOT_ASSIGNED, half_precision, not_assigned
from regard.school.check.explain.divergence import first_divergence, latest_divergence
from regard.school.check.explain.exceptions import explain_crash
from regard.school.check.explain.mistake_lines import hiding_line, likeliest, line_of, steps_of
from regard.school.check.explain.shapes import explain_shapes
from regard.school.check.learner_code.subject import is_function
from regard.school.check.learner_code.text_hints import mask_shows, stated, with_functions
from regard.school.check.verdict import Example, Finding, known, simulated

OVER_THE_BATCH = known(
    "attention over the batch instead of the tokens",
    "Scores compare what stands in the last axis but one: that must be the tokens of one text.",
    "queries = queries.view(B, T, num_heads, head_dim).transpose(1, 2)  # or say it: T, B, width = x.shape",
)
NEGATIVE = known(
    "root of a negative number",
    "A negative number has no root, no logarithm and no power that is a fraction: the result is NaN.",
    "scores = scores / head_dim**0.5  # the root of head_dim, not of the scores",
)
INVERTED = known(
    "mask polarity inverted",
    "masked_fill replaces where its mask is True: that must be the tokens to hide.",
    step="mask",
)
AS_IT_IS = known(
    "mask added as it is",
    "What is added to the scores is 0 where a token may look, and −∞ where it may not.",
    "scores = scores.masked_fill(mask == 0, -torch.inf)",
    "mask",
)
ADDED = r"(?i)-\s*inf|−|-1e|additive|added|bias"  # words of a text that has such a mask
TOKENS = 3
_HALF_TOLERANCE = 5e-3  # of float16 inside
_COLUMNS = 6
# What is shown of a step: its own numbers, or those of the step where they are easier to follow.
_SHOWN = {"mask": "weights", "scaled": "weights", "shared keys": "weights", "split": "split", "scores": "weights"}


def describe_task(result: Experiment) -> str:
    """What it was compared with, in words."""
    case = result.case
    direction = "causal " if case.causal else ""
    if result.anatomy is not None:
        H, D = result.anatomy.head.q.shape[1], result.anatomy.head.q.shape[-1]
        return (
            f"{direction}multi-head attention, {H} heads of {D}"
            if H > 1
            else f"{direction}self-attention, one head of {D}"
        )
    if case.qkv is not None:
        return f"{direction}scaled dot-product attention of q, k and v"
    if not case.projections:
        return f"{direction}attention without weights"
    if case.num_heads == 1:
        return f"{direction}self-attention, one head of {case.head_dim}"
    kv = len(case.projections["W_key"].weight) // max(1, case.head_dim)
    groups = f" that share {kv} key heads" if 0 < kv < case.num_heads and not case.reads_pieces else ""
    return f"{direction}multi-head attention, {case.num_heads} heads of {case.head_dim}{groups}"


def notes_on(result: Experiment) -> list[str]:
    """What else is worth knowing about a layer."""
    notes = [] if result.norm is None else ["It normalises x before it projects it."]
    if result.extension is not None and result.extension.what and not result.extension.unknown:
        notes.append(result.extension.what)
    if result.call.layout == "tokens first":
        notes.append("It takes x as (T, B, width).")
    if result.call.layout == "one text":
        notes.append("It takes one text, (T, width).")
    if result.masked is not None and result.masked.is_right:
        notes.append(f"Its mask: {result.masked.call.mask.partition(', (')[0]}.")
    return notes


def mistakes_in_values(result: Experiment) -> list[Finding]:
    """What is wrong in the values: without a mask, with one, or at other sizes only."""
    if shown := _inverted_where_it_shows(result):
        return [shown]
    mistakes, masked = _mistakes(result), result.masked
    if masked is not None:
        has_more = set(result.names[0]) < set(masked.names[0] if masked.variants else ())
        if has_more if mistakes else not masked.is_right:
            mistakes = _mistakes(masked, " when a mask is passed")
    asked = result if masked is None else masked
    if (not mistakes or asked.names == result.names) and (inverted := _inverted_mask(asked)):
        mistakes = [*mistakes, inverted]
    return mistakes or _lost_mask(result) or _mistakes_elsewhere(result)


def _mistakes(result: Experiment, called: str = "") -> list[Finding]:
    """The mistakes of the smallest explanation; a difference without a name where there is none."""
    if not result.is_explained:
        return [unknown_difference(result, called)]
    variant = likeliest(result)
    return [
        _not_assigned(one, result)
        or simulated(one, result.case, line_of(one, result, variant), tiny_example(one, variant, result.case))
        for one in variant
    ]


def of_negative_numbers(result: Experiment) -> Finding | None:
    """The root, power or logarithm that made the first NaN of a result with NaN."""
    if not bool(result.out.isnan().any()):
        return None
    first = next((one for one in result.seen.forward if bool(one.value.isnan().any())), None)
    if first is None or first.name not in ("pow", "sqrt", "rsqrt", "log"):
        return None
    return NEGATIVE.found(f"The first NaN is made by {first.name}, of numbers some of which are negative.", first.line)


def _not_assigned(one: Mistake, result: Experiment) -> Finding | None:
    """A mask that hides nothing, because what it gave was thrown away."""
    return next(iter(_lost_mask(result)), None) if one.name in WITHOUT_MASK else None


def _lost_mask(result: Experiment) -> list[Finding]:
    """A mask that is made and hides nothing: whatever the layer is called, that is not what was meant."""
    line = 0 if result.is_right and result.case.causal else not_assigned(result.subject.source, result.seen)
    says = "What hides the future is computed, and its result is used nowhere."
    return [NOT_ASSIGNED.found(says, line)] if line else []


def shown_by_code(attempt: Attempt) -> list[Finding]:
    """The mistakes of a layer that nothing explains, where its text and its calls show them together."""
    if found := code_mistakes.mistakes_in_code(attempt):
        return found
    shapes = None if attempt.failed is None else explain_shapes(attempt.failed, attempt.subject.source)
    if shapes is not None and shapes.name:  # two shapes show it, whatever the sizes are
        return [shapes]
    half = half_precision(attempt.seen) if isinstance(attempt, Experiment) else None
    if half is None or not isinstance(attempt, Experiment):
        return []
    tried = attempt.mistakes(attempt.reading)
    for size, case in product(range(LARGEST + 1), attempt.cases):
        if matches := explanations_of_size(case, [attempt.out], size, _HALF_TOLERANCE, tried):
            return [half, *_mistakes(replace(attempt, case=case, variants=[variant for _, variant in matches]))]
    return []


def _mistakes_elsewhere(result: Experiment) -> list[Finding]:
    """What goes wrong at other sizes only."""
    others = [one for one in other_attempts(result) if not _has_other_layout(one, result)]
    if any(isinstance(other, Experiment) and other.is_right for other in others):
        return []
    for other in others:
        if other.failed is not None:
            crash = explain_crash(other)  # without a name, the sizes may be the reason
            return [crash] if crash.name else []
        if isinstance(other, Experiment) and (other.is_explained or result.extension is None):
            return _mistakes(other)
    return []


def _has_other_layout(attempt: Attempt, result: Experiment) -> bool:
    """Did it run only with x in another layout than before, which says nothing?"""
    return isinstance(attempt, Experiment) and attempt.call.layout != result.call.layout


def unknown_difference(result: Experiment, called: str = "") -> Finding:
    """A difference that no known mistake explains: where it begins, and the smallest example that shows it."""
    where = latest_divergence(result.cases, result.seen)
    begins = f"The first step that differs: {where.step}."
    if where.is_changed:
        begins = f"The {where.step} are right at first, and then changed."
    elif where.before:
        begins = f"Everything up to {where.before} is right; the first step that differs: {where.step}."
    says = f"It computes something else{called}, and no known mistake explains it. {begins}"
    return Finding("", says, step=where.step, line=where.line, example=counterexample(result))


def attends_over_the_batch(result: Experiment) -> Finding:
    """Right for x of (T, B, width), but nothing in the code says that it takes that."""
    args = tuple("x" if isinstance(one, str) and one.startswith("x,") else one for one in result.call.args)
    way = CallForm(args, result.call.kwargs, LAYOUTS[0], result.call.mask)
    seen = result.run(calls=[way.as_json()], record=True)
    where = first_divergence(replace(result.case, x=result.prepared(result.tensors["x"])), seen)
    says = (
        "For x of (B, T, width), the first tokens of all texts look at each other, then the second tokens, and so on; "
        "no token sees another of its own text. It is right only for x of (T, B, width), and nothing in the code says "
        "that it takes that."
    )
    return OVER_THE_BATCH.found(says, where.line, step=where.step)


def takes_tokens_for_texts(result: Experiment) -> Finding:
    """Right for x of (B, T, width), where its docstring says (T, B, width)."""
    split = next((call.line for call in result.seen.with_lines if call.value.dim() == 4), 0)
    says = "Its docstring says that x is (T, B, width); it is right only for x of (B, T, width)."
    return OVER_THE_BATCH.found(f"{says} So the texts of a batch look at each other, and no token at another.", split)


_OPPOSITE = {
    "shows: True": "shows: False",
    "shows: False": "shows: True",
    "shows: 1": "shows: 0",
    "shows: 0": "shows: 1",
}


def _inverted_where_it_shows(result: Experiment) -> Finding | None:
    """A mask that is required, and hides everything where its text says that it shows everything."""
    if result.names[:1] != [("scores ignored",)]:
        return None
    forms = ((name, form) for name in result.call.names for form in _OPPOSITE if form in name)
    opposite = {name: name.replace(form, _OPPOSITE[form]) for name, form in forms}
    args = [opposite.get(one, one) if isinstance(one, str) else one for one in result.call.args]
    kwargs = {name: opposite.get(one, one) if isinstance(one, str) else one for name, one in result.call.kwargs.items()}
    call = replace(result.call, args=tuple(args), kwargs=kwargs)
    if not opposite:
        return None
    outs = result.outputs(result.run(1, result.inputs(result.tensors["x"], [call]), calls=[call.as_json()]))
    if not outs or not any(same(outs[0], one, 1e-4) for one in outputs(result.case, ())):
        return None
    says = "Where its text says that a token may be seen, the mask hides it, and the other way round."
    return INVERTED.found(says, hiding_line(result.seen), fix="scores = scores.masked_fill(mask == 0, -torch.inf)")


def _inverted_mask(masked: Experiment) -> Finding | None:
    """A mask that hides where the comment or docstring says that it shows, or the other way round."""
    shows = mask_shows(with_functions(masked.subject.source, masked.subject.described["name"]))
    form = masked.call.mask.partition(", (")[0]
    meant, opposite = ("may attend", "hidden") if shows else ("hidden", "may attend")
    if shows is not None and form == "added to the scores" and not re.search(ADDED, stated(masked.text, "")):
        return _added_mask(masked, meant)
    if shows is None or not masked.is_explained or form not in (f"True = {opposite}", f"1 = {opposite}"):
        return None
    does, meaning = ("hides", "may be seen") if shows else ("shows", "is hidden")
    says = f"Where the mask that is passed is 1 or True, it {does} a token; "
    says += f"the text in the code says that such a token {meaning}."
    fix = "scores = scores.masked_fill(mask == 0, -torch.inf)" if shows else "scores.masked_fill(mask, -torch.inf)"
    return INVERTED.found(says, hiding_line(masked.seen), fix=fix)


def _added_mask(masked: Experiment, meant: str) -> Finding | None:
    """A mask of 1 and 0, as the text in the code has it, that is added to the scores and hides nothing."""
    call, calls = masked.call, []
    for form in (call.mask.replace("added to the scores", f"{one} = {meant}") for one in ("True", "1")):
        given = {name: form if one == call.mask else one for name, one in call.kwargs.items()}
        args = tuple(form if one == call.mask else one for one in call.args)
        calls.append(replace(call, args=args, kwargs=given).as_json())
    outs = masked.outputs(masked.run(calls=calls))
    if not outs or not masked.is_right or any(masked.is_formula(out, masked.case) for out in outs):
        return None
    says = f"With a mask of 1 and 0, where 1 = {meant} as the text in the code has it, it hides nothing: it is added."
    return AS_IT_IS.found(says, hiding_line(masked.seen))


def tiny_example(mistake: Mistake, variant: Variant, case: Case) -> Example | None:
    """The step of a mistake for three tokens and one head, with the mistake and without it."""
    few = slice(TOKENS)
    small = replace(
        case,
        x=case.x[:, few],
        mask=None if case.mask is None else case.mask[few, few],
        qkv=case.qkv and tuple(t[:, few] for t in case.qkv),
        bias=None if case.bias is None else case.bias[:, few, few],
    )
    wrong, right = steps_of(small, variant), steps_of(small, tuple(one for one in variant if one is not mistake))
    name = _SHOWN.get(mistake.shows, mistake.shows)
    if name not in wrong or name not in right:
        return None
    seen, expected = _first(wrong[name]), _first(right[name])
    if name == "weights" and same(seen, expected) and "out" in wrong and "out" in right:
        seen, expected, name = _first(wrong["out"]), _first(right["out"]), "out"
    heads = f", head 0 of {case.num_heads}" if wrong[name].dim() == 4 and case.num_heads > 1 else ""
    return Example(f"{name} for {TOKENS} tokens{heads}", seen[:, :_COLUMNS], expected[:, :_COLUMNS])


def _first(t: Tensor) -> Tensor:
    return t.flatten(0, -3)[0] if t.dim() > 2 else t


def counterexample(result: Experiment) -> Example | None:
    """The output for the fewest texts, tokens and heads with which the difference still shows."""
    if is_function(result.subject):
        return None
    smallest = _smallest(result)
    s, heads = smallest.sizes, smallest.case.num_heads
    expected = steps_of(smallest.case, ()).get("out")
    if expected is None or expected.shape[:2] != smallest.out.shape[:2]:
        return None
    texts = f"{s.B} text{'s' * (s.B != 1)}, {s.T} token{'s' * (s.T != 1)}, {heads} head{'s' * (heads != 1)}"
    seen, right = smallest.out[0].to(torch.float64), expected[0]
    return Example(f"out for {texts}", seen[:, :_COLUMNS], right[:, :_COLUMNS])


def _smallest(result: Experiment) -> Experiment:
    """The experiment at the smallest sizes at which nothing explains it either."""
    changes: list[dict[str, int]] = [{"B": 1}, {"T": 1}, {"T": 2}, {"T": 3}]
    changes += [] if result.subject.is_built else [{"num_heads": 1}, {"head_dim": 2}]
    smallest = result
    for change in changes:
        sizes = replace(smallest.sizes, **change)
        if sizes == smallest.sizes or sizes.T > smallest.sizes.T:
            continue
        try:
            smaller = experiment(result.subject, sizes, 0, result.request, masked=bool(result.call.mask), most=0)
        except ValueError:
            continue
        if isinstance(smaller, Experiment) and not smaller.is_explained:
            smallest = smaller
    return smallest
