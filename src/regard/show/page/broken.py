"""Weights that are not numbers, for the page: which rows of a head, and whether NaN or infinity made them so.

Such a row sees no key, as one does that the mask hides everything from; only the log of its sum tells them apart.
"""

from typing import Any

import torch
from torch import Tensor

from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.calls.visibility import row_tiles, visible_tile
from regard.heads.report.views import SeenLayer


def rows_without_numbers(view: SeenLayer, text: int) -> dict[str, dict[str, Any]]:
    """By head, the rows whose weights are no numbers, as [first, last], and the kind: "NaN" or "infinity"."""
    found: dict[str, list[list[int]]] = {}
    infinite: dict[str, bool] = {}
    for rows, _, call, lse in view.record.calls():
        wrong = lse[text].isnan() | (lse[text] == torch.inf)
        if wrong.any():  # the sum over no visible key is no number either, and padding is not counted
            wrong &= _sees_a_key(call, text).expand_as(wrong)
            if call.origin.real is not None:
                wrong &= call.origin.real[text].to(wrong.device)
        attention = call.attention
        for head in wrong.any(-1).nonzero().flatten().tolist():
            name = str(head)
            numbers = (wrong[head].nonzero().flatten() + rows.start).tolist()
            _join(found.setdefault(name, []), numbers)
            if not isinstance(attention, OwnWeights):
                shared = attention.q.shape[1] // attention.k.shape[1]
                parts = attention.q[text, head], attention.k[text, head // shared]
                is_inf = any(one.isinf().any() for one in parts) and not any(one.isnan().any() for one in parts)
                infinite[name] = infinite.get(name, True) and is_inf
    return {
        head: {"rows": runs, "kind": "infinity" if infinite.get(head, False) else "NaN"} for head, runs in found.items()
    }


def _sees_a_key(call: WatchedCall, text: int) -> Tensor:
    """(H or 1, rows): does the mask leave a key visible?"""
    tiles = [visible_tile(call, rows).any(-1) for rows in row_tiles(call)]
    sees = torch.cat(tiles, -1)
    return sees[text if len(sees) > 1 else 0]


def _join(runs: list[list[int]], numbers: list[int]) -> None:
    """Add numbers in ascending order to runs of [first, last]."""
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
