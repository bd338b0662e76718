"""Which axis of an attention call holds the heads, and how that is known.

Weights are (T, S), (N, T, S) with texts and heads in one axis, (B, H, T, S), or have further axes, such as windows of
an image, or heads in groups that share keys. Where the module that makes the call declares its heads (num_heads and the
like) and the sizes leave no doubt, that is enough. Otherwise the axes are read from how the queries were cut out of a
projection (axis_roles.py). Where that is not known, the memory of the queries (a projection's heads lie side by side),
a later view of the weights or the number of texts tell; what they leave open is assumed, or unknown.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.heads.calls.axis_roles import HEAD, TEXT, AxisPlan, AxisRoles, CallPart
from regard.heads.calls.basis import FROM_CALL, Fact, How, assumed, unknown
from regard.heads.calls.score_origin import Memory
from regard.support.vocabulary import HEADS


class HeadAxis(NamedTuple):
    """The leading axes of a call as texts and heads.

    axis: which of them holds the heads; all others are texts. split: (B, H), where the first one holds both; a second
    one are windows. grouped: the last two of them are heads. plan: any other order, in place of all these.
    """

    axis: int = -3
    split: tuple[int, int] | None = None
    fact: Fact = FROM_CALL
    grouped: bool = False
    plan: AxisPlan | None = None
    part: CallPart | None = None  # what of its module's input the call has, where that is known

    @property
    def reorders(self) -> bool:
        """Are the heads elsewhere than in the last of the leading axes?"""
        return self.axis != -3 if self.plan is None else self.plan.reorders

    @property
    def has_rows_last(self) -> bool:
        """Are the queries in the axis before the keys?"""
        return self.plan is None or self.plan.has_rows_last

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

    def with_part_of(self, roles: AxisRoles, shape: tuple[int, ...]) -> HeadAxis:
        """The same with what of its module's input the call has, where these roles say the same of its axes."""
        own, plan = self.apply(torch.empty(shape, device="meta")), roles.plan
        agrees = plan is not None and own.shape[:2] == (plan.count(TEXT), plan.count(HEAD))
        return self._replace(part=roles.part_of_several) if agrees else self

    def apply(self, t: Tensor) -> Tensor:
        """(…, x, y) → (B, H, x, y)."""
        if self.plan is not None:
            return self.plan.apply(t)
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


class UsualCalls:
    """Calls of modules that had (B, H, T, S) when their sizes left no doubt, as they have at every size.

    A call is its number among those of its module, the function that was called, and its number of heads: as many
    queries or texts as heads, later, are no doubt.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[nn.Module], set[Hashable]]] = {}

    def add(self, module: nn.Module, call: Hashable) -> None:
        key, entry = id(module), self._known.get(id(module))
        if entry is None or entry[0]() is not module:
            self._known[key] = entry = weakref.ref(module, lambda _: self._known.pop(key, None)), set()
        entry[1].add(call)

    def decide(self, module: nn.Module, call: Hashable, shape: tuple[int, ...], declared: int | None) -> bool:
        """Are as many queries or texts as heads the only doubt, and did this call have its heads second before?"""
        if len(shape) != 4 or shape[1] not in (shape[0], shape[2]) or declared not in (None, shape[1]):
            return False
        entry = self._known.get(id(module))
        return entry is not None and entry[0]() is module and call in entry[1]


def is_in_doubt(
    shape: tuple[int, ...], declared: int | None, given: int | None, batch: int | None, q: Memory | None
) -> bool:
    """May weights (…, T, S) have their heads elsewhere than in the second of four axes?

    given: how many texts of T tokens the module around the call was given: where all its tokens are in the other two
    axes, the second one can only be heads. One head may be one of a loop over heads.
    """
    if len(shape) != 4:
        return True
    B, H, T, _ = shape
    texts = given or batch if declared == H else given
    if declared not in (None, H) or (declared is None and H == 1) or texts != B:
        return True
    return H in (B, T) and H > 1 and not (q is not None and q.shape[:-1] == shape[:-1] and q.heads_axis == -3)


def find_head_axis(
    shape: tuple[int, ...],
    declared: int | None,
    batch: int | None,
    viewed: tuple[int, int] | None = None,
    q: Memory | None = None,
    by_convention: bool = False,
    given: int | None = None,
) -> HeadAxis:
    """The heads of a call (…, T, S), by its sizes: declared: by a module. batch: how many texts. viewed: (B, H), by a
    later view. q: how its queries lie in memory. by_convention: the function that was called has heads before the
    queries. given: how many texts of T tokens the module around the call was given, windows of an image among them.
    """
    lead = shape[:-2]
    if not lead:
        return HeadAxis()
    if len(lead) == 1:
        return _of_one_axis(lead[0], declared, batch, viewed, given)
    if len(lead) == 2:
        return _of_two_axes(shape, declared, batch, q, by_convention, given)
    if declared == shape[-4] * shape[-3] and declared not in shape[1:-2]:
        return HeadAxis(-3, grouped=True)
    axes = range(-len(shape) + 1, -2)
    by_memory = None if q is None or len(q.shape) != len(shape) else q.heads_axis
    if by_memory is not None and by_memory in axes:
        return HeadAxis(by_memory)
    fitting = [axis for axis in axes if shape[axis] == declared]
    if len(fitting) == 1:
        return HeadAxis(fitting[0], fact=assumed(f"the axis of size {declared} holds the heads"))
    if not declared and by_convention:
        return HeadAxis(fact=assumed("heads are in the axis before the queries"))
    why = f"{len(fitting) or 'none'} of the axes may hold its {declared} heads"
    why = why if declared else "nothing says which axis holds the heads"
    return HeadAxis(fact=unknown(f"its weights are {tuple(shape)}, and {why}"))


def _of_one_axis(
    N: int, declared: int | None, batch: int | None, viewed: tuple[int, int] | None, given: int | None
) -> HeadAxis:
    """(N, T, S): texts and heads in one axis."""
    if viewed is not None and viewed[0] * viewed[1] == N and (declared in (None, viewed[1]) or batch == viewed[0]):
        return HeadAxis(-3, viewed)
    one_each = (given or batch) == N
    if one_each and declared in (None, 1):
        return HeadAxis(-3, (N, 1))
    if one_each:
        return HeadAxis(-3, (N, 1), assumed(f"{N} texts of one head"))
    if declared and batch and N % (batch * declared) == 0:  # more than one window for each text, perhaps
        texts = N // declared
        return HeadAxis(-3, (texts, declared), assumed(f"{N} matrices are {declared} heads for each of {texts} texts"))
    if not batch:
        return HeadAxis(-3, (N, 1), assumed(f"{N} texts of one head"))
    if N % batch:
        reason = f"its weights are {N} matrices for {batch} texts" + (f" and {declared} heads" if declared else "")
        return HeadAxis(-3, (N, 1), unknown(reason))
    heads = N // batch
    return HeadAxis(-3, (batch, heads), assumed(f"{N} matrices are {heads} heads for each of {batch} texts"))


def _of_two_axes(
    shape: tuple[int, ...],
    declared: int | None,
    batch: int | None,
    q: Memory | None,
    by_convention: bool,
    given: int | None,
) -> HeadAxis:
    """(B, H, T, S), as nearly every model has it; or windows second, and heads with the texts in the first axis."""
    B, H, T, _ = shape
    if not is_in_doubt(shape, declared, given, batch, q):
        return HeadAxis(-3)
    if declared == H or declared is None:
        return HeadAxis(-3, fact=assumed("heads are in the axis before the queries"))
    if declared == 1 or declared * (batch or 0) == B:
        texts = B // declared
        return HeadAxis(-3, (texts, declared), assumed(f"its {B} × {H} matrices are {texts} × {declared} heads × {H}"))
    what = f"its weights are {tuple(shape)} and it has {declared} heads, which are not in the second axis"
    return HeadAxis(-3, None, unknown(what) if declared == T and not by_convention else assumed(what))
