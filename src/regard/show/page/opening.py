"""The head that a page opens with: the one with the best story in this text.

seen.order() lists heads by role, the clearest first, and a role needs its threshold over the whole text. In a long text
with many repetitions a head that copies spreads its weights over all of them and passes none; it is still what a reader
should see first, rather than one of many heads that look at the token before.
"""

from collections.abc import Mapping
from typing import Any

from regard.heads.report.report import Seen

COPIES = 0.15  # mean weight on the token after the last occurrence of this one, from which a head has a story


def order_of_heads(
    seen: Seen, layer: int | str | None = None, portraits: Mapping[tuple[int, int], Any] | None = None
) -> list[tuple[int, int]]:
    """(layer, head) of every head, or of those of one layer: as seen.order() lists them, the one with a story first.

    That is the first of a role of its own for repeated tokens; without one, the head with the largest weight on what
    followed a token before, if that is COPIES or more; else the first of seen.order(). portraits: those of seen.
    """
    order = seen.order(layer)
    portraits = seen.portraits() if portraits is None else portraits
    copies = {place: portraits[place].means.get("induction", 0.0) for place in order}
    best = max(order, key=lambda place: copies[place], default=None)
    if best is None or not copies[best] >= COPIES or portraits[order[0]].role.name in ("induction", "duplicate"):
        return order
    return [best, *(place for place in order if place != best)]
