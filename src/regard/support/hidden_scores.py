"""Does this score hide a key? One answer for attention, watch, traces and check.

Masks are added to scores, or written in their place, as −∞ or as a number that is as good as −∞. A NaN hides nothing:
its key is visible, and makes the row NaN, as in torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Models add −∞ or the lowest number of a dtype, of which float16's, −65504, is the highest. Half of it leaves room for
# the score that it is added to. Real scores and ALiBi's bias over a long text can be as low as −10,000.
HIDES = -32752.0
# In a small example no score is near this, and some people write −10,000 for −∞.
HIDES_IN_EXAMPLE = -9000.0


def is_hidden(scores: Tensor, limit: float = HIDES) -> Tensor:
    """Which keys are hidden, by their scores or by what is added to them.

    >>> import torch
    >>> is_hidden(torch.tensor([-torch.inf, -1e9, -100.0, torch.nan]))
    tensor([ True,  True, False, False])
    """
    return scores <= limit


def may_see(scores: Tensor, limit: float = HIDES) -> Tensor:
    """Which keys are visible: those that are not hidden."""
    return ~is_hidden(scores, limit)


def may_see_among(scores: Tensor) -> Tensor:
    """Which keys are visible, by all scores of a call, or by all that is added to them.

    Some models add −10,000 for −∞. That is what it is where no score is between it and ordinary ones; ALiBi's bias has
    scores in between.

    >>> import torch
    >>> may_see_among(torch.tensor([2.0, -1e4])), may_see_among(torch.tensor([2.0, -6e3, -1e4]))
    (tensor([ True, False]), tensor([True, True, True]))
    """
    seen, ordinary = may_see(scores), may_see(scores, HIDES_IN_EXAMPLE / 2)
    if seen.equal(ordinary):
        return seen
    return ordinary if ordinary.equal(may_see(scores, HIDES_IN_EXAMPLE)) else seen
