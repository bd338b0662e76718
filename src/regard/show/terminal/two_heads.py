"""Two heads of a report side by side: their statistics, the most different first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.heads.measure.registry import BY_NAME
from regard.heads.report.report import Seen
from regard.show.terminal.table import Cell, Signed, legend_table, text_table


def statistics_table(seen: Seen, heads: Sequence[tuple[int, int]], width: int = 80) -> str:
    """The means of two heads, (layer, head), and their difference.

    The order is that of the differences as shares of the largest possible value, as in a comparison of two reports.
    """
    one, two = (seen.portraits()[place] for place in heads)
    shares = one.shares(), two.shares()
    known = [name for name in one.means if name in two.means and not math.isnan(one.means[name] + two.means[name])]
    known.sort(key=lambda name: -abs(shares[1][name] - shares[0][name]))
    columns = ["statistic", *(f"{layer}.{head}" for layer, head in heads), "difference"]
    rows: list[list[Cell]] = [
        [BY_NAME[name].heading or name, one.means[name], two.means[name], Signed(two.means[name] - one.means[name])]
        for name in known
    ]
    legend = {BY_NAME[name].heading or name: BY_NAME[name].legend for name in known}
    return f"{text_table(columns, rows, width)}\n\n{legend_table(legend, width)}"
