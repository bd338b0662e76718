"""Products with scores or weights that are no attention that could be reported: they are named in a warning.

Scores that are multiplied without a softmax (sigmoid, exp over sum), and keys that are multiplied with values before
the queries (linear attention).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from regard.heads.calls.axis_roles import mixes_tokens, multiplies_keys_with_values
from regard.heads.calls.score_origin import learned

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

NO_SOFTMAX = "its scores are multiplied with values without a softmax"
NO_WEIGHTS = "it multiplies keys with values before queries (linear attention), so it has no weights"


class OtherProducts:
    """Looks at each product that makes no softmax attention."""

    def __init__(self, interceptor: Interceptor) -> None:
        self.interceptor = interceptor

    def check(self, tensors: Sequence[Tensor], summed: Sequence[int]) -> None:
        """Tensors are multiplied; summed: the axis of each that is summed over."""
        if len(tensors) == len(summed) == 2 and not self.interceptor.softmaxes.lost:
            for tensor, other, axis in zip(tensors, reversed(tensors), summed, strict=True):
                self._check_scores(tensor, other, axis)

    def _check_scores(self, tensor: Tensor, other: Tensor, axis: int) -> None:
        step = self.interceptor.lineage.of(tensor)
        if step is None or not step.is_scores or other.dim() < 2 or learned(other):
            return
        if mixes_tokens(step, axis):
            self.interceptor.refuse(NO_SOFTMAX)
        elif multiplies_keys_with_values(step):
            self.interceptor.refuse(NO_WEIGHTS)
