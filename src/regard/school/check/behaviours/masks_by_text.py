"""Masks by text: where a layer takes a mask for each text of a batch, each text gets its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import torch

from regard.school.check.behaviours.padding_argument import documentation
from regard.school.check.behaviours.registry import NotOffered, behaviour
from regard.school.check.behaviours.sizes import is_formula_of
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import hiding_line
from regard.school.check.learner_code.text_hints import BATCH_NAMES
from regard.school.check.verdict import Finding, known

_WHY = "The texts of a batch have nothing to do with each other: each has its own mask."
_FIX = "scores = scores.masked_fill(~mask[:, None], -torch.inf)  # (B, 1, T, S): the mask of each text, for all heads"
ONE_TEXT = known("mask of one text used for all", _WHY, _FIX, "mask")
OF_ANOTHER = known("mask of another text used", f"{_WHY} Text 0 has all its heads before text 1.", _FIX, "mask")
_SAYS = {
    ONE_TEXT: "Whatever the masks of the other texts are, that of text 0 is used.",
    OF_ANOTHER: "Some heads of a text get the mask of another text.",
}


@behaviour("masks of each text")
def masks_by_text(result: Experiment) -> Iterator[Finding]:
    """Masks (B, T, T) that differ from text to text, where the text in the code speaks of such."""
    masked = result if result.call.mask else result.masked
    says = rf"(?i)\b\w*(mask|adj)\w*`?\W.{{0,40}}[(\[]\s*{BATCH_NAMES}\s*,|(one|a) mask (per|for each|for every)"
    if masked is None or not is_formula_of(masked) or not re.search(says, documentation(result)):
        raise NotOffered
    B, T, H = masked.sizes.B, masked.sizes.T, masked.case.num_heads
    visible = torch.rand(B, T, T, generator=torch.Generator().manual_seed(83)) < 0.5
    visible |= torch.eye(T, dtype=torch.bool)
    meaning = masked.call.mask.partition(", (")[0]
    written = {
        "True = may attend": visible,
        "True = hidden": ~visible,
        "1 = may attend": visible.double(),
        "1 = hidden": (~visible).double(),
        "added to the scores": torch.zeros(B, T, T).double().masked_fill(~visible, -torch.inf),
    }[meaning]
    outs = [
        out
        for mask in (written, written[:, None])
        for out in masked.outputs(masked.run(tensors={masked.call.mask: mask}))
    ]
    wrong = {
        None: visible[:, None],
        ONE_TEXT: visible[:1, None].expand(B, 1, T, T),
        OF_ANOTHER: visible.repeat(H, 1, 1).view(B, H, T, T),
    }
    if not outs:
        raise NotOffered
    for finding, mask in wrong.items():
        if any(masked.is_formula(out, replace(masked.case, mask=mask)) for out in outs):
            if finding is not None:
                yield finding.found(_SAYS[finding], hiding_line(masked.seen))
            return
