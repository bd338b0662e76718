"""Which axis of an attention call holds the heads, and how that is known.

Weights are (T, S), (N, T, S) with texts and heads in one axis, (B, H, T, S), or have further axes, such as windows of
an image, or heads in groups that share keys. The axis is told by the module that makes the call (num_heads and the
like), by the memory of its queries (a projection's heads lie side by side), by a later view of the weights, or by the
number of texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from regard.heads.calls.basis import FROM_CALL, Fact, How, assumed, unknown
from regard.heads.calls.score_origin import Memory
from regard.support.vocabulary import HEADS


class HeadAxis(NamedTuple):
    """The leading axes of a call as texts and heads.

    axis: which of them holds the heads; all others are texts. split: (B, H), where the first one holds both; a second
    one are windows. grouped: the last two of them are heads.
    """

    axis: int = -3
    split: tuple[int, int] | None = None
    fact: Fact = FROM_CALL
    grouped: bool = False

    @property
    def reorders(self) -> bool:
        """Are the heads elsewhere than in the last of the leading axes?"""
        return self.axis != -3

    @property
    def shares_axis(self) -> bool:
        """Are texts and heads, several of both, in one axis, whose order is not to be seen in the call?"""
        return self.split is not None and min(self.split) > 1

    def keeps_order(self, axes: int) -> bool:
        """Are texts, heads and queries of a tensor with so many axes in this order, when others are flattened?"""
        return not self.reorders and not (self.shares_axis and axes == 4)

    @property
    def unknown(self) -> str:
        """Why it is not known where the heads are; "" where it is."""
        return self.fact.reason if self.fact.how is How.UNKNOWN else ""

    def apply(self, t: Tensor) -> Tensor:
        """(…, x, y) → (B, H, x, y)."""
        if t.dim() == 2:
            return t[None, None]
        if t.dim() == 3:
            return t[:, None] if self.split is None else t.unflatten(0, self.split)
        if self.split is not None:
            windows: Tensor = t.unflatten(0, self.split)  # (B, H, windows, x, y)
            return windows.transpose(1, 2).flatten(0, 1)
        if self.grouped:
            t = t.flatten(-4, -3)
        return t.movedim(self.axis, -3).flatten(0, -4)


def declared_heads(modules: Iterable[nn.Module]) -> int | None:
    """How many heads the innermost of these modules that says so has."""
    for module in modules:
        for name in HEADS:
            count = getattr(module, name, None)
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                return count
    return None


def find_head_axis(
    shape: tuple[int, ...],
    declared: int | None,
    batch: int | None,
    viewed: tuple[int, int] | None = None,
    q: Memory | None = None,
    by_convention: bool = False,
    given: int | None = None,
) -> HeadAxis:
    """The heads of a call (…, T, S): declared: by a module. batch: how many texts. viewed: (B, H), by a later view.
    q: how its queries lie in memory. by_convention: the function that was called has heads before the queries.
    given: how many texts of T tokens the module around the call was given, windows of an image among them.
    """
    lead = shape[:-2]
    if not lead:
        return HeadAxis()
    if len(lead) == 1:
        return _of_one_axis(lead[0], declared, batch, viewed, given)
    if len(lead) == 2:
        return _of_two_axes(shape, declared, batch, by_convention)
    if declared == shape[-4] * shape[-3] and declared not in shape[1:-2]:
        return HeadAxis(-3, grouped=True)
    axes = range(-len(shape) + 1, -2)
    by_memory = None if q is None or len(q.shape) != len(shape) else q.heads_axis
    if by_memory is not None and by_memory in axes:
        return HeadAxis(by_memory)
    fitting = [axis for axis in axes if shape[axis] == declared]
    if len(fitting) == 1:
        return HeadAxis(fitting[0])
    if not declared and by_convention:
        return HeadAxis(fact=assumed("heads are in the axis before the queries"))
    why = f"{len(fitting) or 'none'} of the axes may hold its {declared} heads"
    why = why if declared else "nothing says which axis holds the heads"
    return HeadAxis(fact=unknown(f"its weights are {tuple(shape)}, and {why}"))


def _of_one_axis(
    N: int, declared: int | None, batch: int | None, viewed: tuple[int, int] | None, given: int | None
) -> HeadAxis:
    """(N, T, S): texts and heads in one axis."""
    if viewed is not None and viewed[0] * viewed[1] == N:
        return HeadAxis(-3, viewed)
    if given == N != batch:  # windows, of one head
        return HeadAxis(-3, (N, 1))
    if declared and batch and N % (batch * declared) == 0:  # more than one window for each text, perhaps
        return HeadAxis(-3, (N // declared, declared))
    if batch == N:
        return HeadAxis(-3, (N, 1))
    if not batch:
        return HeadAxis(-3, (N, 1), assumed(f"{N} texts of one head"))
    if N % batch:
        reason = f"its weights are {N} matrices for {batch} texts" + (f" and {declared} heads" if declared else "")
        return HeadAxis(-3, (N, 1), unknown(reason))
    heads = N // batch
    return HeadAxis(-3, (batch, heads), assumed(f"{N} matrices are {heads} heads for each of {batch} texts"))


def _of_two_axes(shape: tuple[int, ...], declared: int | None, batch: int | None, by_convention: bool) -> HeadAxis:
    """(B, H, T, S), as nearly every model has it; or windows second, and heads with the texts in the first axis."""
    B, H, T, _ = shape
    if declared is None or declared == H:
        return HeadAxis(-3)
    if declared == 1 or declared * (batch or 0) == B:
        return HeadAxis(-3, (B // declared, declared))
    if by_convention:
        return HeadAxis(-3)
    what = f"its weights are {tuple(shape)} and it has {declared} heads, which are not in the second axis"
    return HeadAxis(-3, None, unknown(what) if declared == T else assumed(what))
