"""The caller's tensors: x and mask stay as they are."""

from __future__ import annotations

from collections.abc import Iterator

from regard.school.check.behaviours.registry import behaviour
from regard.school.check.compare.experiment import Experiment
from regard.school.check.verdict import Finding, known

_IN_PLACE = ("iadd", "imul", "isub", "itruediv", "setitem", "iand", "ior")
_WHY_IN_PLACE = "Whoever calls the layer may still need that tensor: a residual connection adds the input again."
_NEW_TENSOR = "y = x + 1  # a new tensor, in place of x += 1 or x.add_(1)"
CHANGED = {
    what: known(f"in-place change of the caller's {what}", _WHY_IN_PLACE, _NEW_TENSOR) for what in ("input", "mask")
}


def with_and_without_mask(result: Experiment) -> list[Experiment]:
    """The experiment, and the same with a mask where it takes one."""
    return [result] if result.masked is None else [result, result.masked]


@behaviour("the caller's tensors", of_functions=True)
def changes_arguments(result: Experiment) -> Iterator[Finding]:
    """In-place change of the caller's input or mask."""
    for one in with_and_without_mask(result):
        names = [name for run in one.seen.runs for name in run.changed]
        if not names:
            continue
        what = "input" if min(names).partition(",")[0] in ("x", "q", "k", "v") else "mask"
        shape = one.tensors[names[0]].shape
        in_place = [call for call in one.seen.forward if call.name.endswith("_") or call.name in _IN_PLACE]
        lines = [
            call.line
            for call in in_place
            if (call.value.shape == shape if what == "input" else call.value.dim() < 4 or call.value.shape[1] == 1)
        ]
        says = f"After the call, the {what} that was passed has other numbers than before."
        yield CHANGED[what].found(says, lines[0] if lines else 0)
        return
