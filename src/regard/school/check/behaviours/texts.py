"""Texts: equal tokens, and tensors that lie in memory in another order, are texts like others."""

from __future__ import annotations

from collections.abc import Iterator

from regard.mistakes.search import same
from regard.school.check.behaviours.probing import CLOSE, Probe, text
from regard.school.check.behaviours.registry import NotOffered, behaviour
from regard.school.check.behaviours.sizes import case_of, is_formula_of
from regard.school.check.compare.experiment import Experiment
from regard.school.check.explain.mistake_lines import line_with
from regard.school.check.verdict import Finding, known

EQUAL = known(
    "wrong for equal tokens",
    "A token that comes twice is two keys: each of them gets its weight.",
)
STRIDED = known(
    "wrong for tensors that are not contiguous",
    "x.transpose(0, 1) has the same numbers as its copy, in another order in memory; a layer must give the same.",
    "t.reshape(B, T, num_heads, head_dim).transpose(1, 2)  # it knows the order in memory, as_strided does not",
)


@behaviour("equal tokens", of_functions=True)
def equal_tokens(result: Experiment) -> Iterator[Finding]:
    """Two tokens of a text that are the same, and a text of nothing but one token."""
    if not is_formula_of(result):
        raise NotOffered  # what is right for such a text is not known
    twice = text(result, 61, result.sizes.B, result.sizes.T)
    twice[:, 3] = twice[:, 1]
    probe, texts = Probe(result), (twice, twice[:, :1].expand_as(twice).contiguous())
    for x in texts:
        probe.add(x)
    for x, out in zip(texts, probe.run(), strict=True):
        if out is not None and not result.is_formula(out, case_of(result, x)):
            yield EQUAL.found("Where two tokens of a text are the same, it computes something else.")
            return


@behaviour("memory order", of_functions=True)
def memory_order(result: Experiment) -> Iterator[Finding]:
    """Tensors that are not contiguous. Where it fails with them, it says so itself."""
    outs = result.outputs(result.run(1, strided=True))
    if outs and not same(outs[0], result.outputs(result.run(1))[0], CLOSE):
        line = line_with(result.subject.source, r"as_strided|data_ptr|storage|frombuffer")
        yield STRIDED.found("For a tensor that is not contiguous in memory, it computes something else.", line)
