"""Ambiguities: code that is right in one reading and wrong in the other, and whose own text says which is meant."""

from __future__ import annotations

from dataclasses import replace

from regard.school.check.compare.call_forms import LAYOUTS, CallForm
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.divergence import first_divergence
from regard.school.check.explain.mistake_lines import hiding_line
from regard.school.check.learner_code.text_hints import has_positions, has_window, mask_shows
from regard.school.check.verdict import Finding, known

_HIDES = ("True = hidden", "1 = hidden")
_SHOWS = ("True = may attend", "1 = may attend")
OVER_THE_BATCH = known(
    "attention over the batch instead of the tokens",
    "Scores compare what stands in the last axis but one: that must be the tokens of one text.",
    "queries = queries.view(B, T, num_heads, head_dim).transpose(1, 2)  # or say it: T, B, width = x.shape",
)
INVERTED = known(
    "mask polarity inverted",
    "masked_fill replaces where its mask is True: that must be the tokens to hide.",
    step="mask",
)


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


def inverted_mask(masked: Experiment) -> Finding | None:
    """A mask that hides where the comment or docstring says that it shows, or the other way round."""
    shows = mask_shows(masked.text)
    form = masked.call.mask.partition(", (")[0]
    if shows is None or not masked.is_right or form not in (_HIDES if shows else _SHOWS):
        return None
    does, meaning = ("hides", "may be seen") if shows else ("shows", "is hidden")
    says = f"Where the mask that is passed is 1 or True, it {does} a token; "
    says += f"the text in the code says that such a token {meaning}."
    fix = "scores = scores.masked_fill(mask == 0, -torch.inf)" if shows else "scores.masked_fill(mask, -torch.inf)"
    return INVERTED.found(says, hiding_line(masked.seen), fix=fix)


def beyond_the_formula(text: str, finding: Finding) -> str:
    """Why a layer with something beside the formula could not be checked; "" where the code speaks of no such thing.

    Positions change queries, keys and scores, and a window what is hidden. What differs elsewhere is wrong.
    """
    steps = ("queries", "keys", "split", "scores", "scaled")
    what = "positions" if finding.step in steps and has_positions(text) else ""
    if finding.step in ("mask", "weights", "context") and has_window(text):
        what = "a window"
    if not what:
        return ""
    line = f" (line {finding.line})" if finding.line else ""
    begins = finding.says.partition("explains it. ")[2].removesuffix(".")
    begins = f"{begins[0].lower()}{begins[1:]}" if begins else f"it differs from the {finding.step} on"
    return f"it has {what} beside the formula, which are not known here; {begins}{line}."
