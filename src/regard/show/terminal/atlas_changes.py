"""What two atlases say differently, as a table: the largest change beyond noise first."""

from collections.abc import Sequence

from regard.heads.atlas.difference import MANY, AtlasDifference, HeadChange
from regard.heads.measure.registry import BY_NAME
from regard.show.terminal.table import Cell, Signed, html_table, legend_table, terminal_width, text_table
from regard.support.drawing import as_html, as_text

_FEW = 24
_COLUMNS = ("head", "role", "most", "before", "after", "change", "noise")
_SIDES = ("first", "second")
_LEGEND = {
    "head": "the place of a head; two where its best partner is in another place",
    "most": "the statistic that changed most beyond noise",
    "noise": f"standard error of the change over texts; {MANY:.0f} of them are noise",
}


@as_text.register
def _difference_as_text(
    found: AtlasDifference, width: int | None = None, all: bool = False, few: int = _FEW, more: str = ".table(all=True)"
) -> str:
    width = terminal_width() if width is None else width
    changed = list(found) if all else found.changed()
    if not changed:
        return f"{_heading(found)}\n\n  nothing changed beyond its noise"
    shown = changed if all else changed[:few]
    rest = [f"  … and {len(changed) - len(shown)} more: {more}"] if len(shown) < len(changed) else []
    table = text_table(_COLUMNS, [_row(one) for one in shown], width)
    return "\n".join([_heading(found), "", table, *rest, "", legend_table(_LEGEND, width)])


@as_html.register
def _difference_as_html(found: AtlasDifference) -> str:
    rows = [_row(one) for one in found.changed()[:_FEW]]
    return html_table(_heading(found).strip(), list(_COLUMNS), rows, "", _LEGEND)


def _heading(found: AtlasDifference) -> str:
    alone = [f"{n} of the {side} have no partner" for n, side in zip(found.alone, _SIDES, strict=True) if n]
    moved = sum(one.moved for one in found)
    parts = [f"{sum(one.beyond > 0 for one in found)} of {len(found)} heads changed beyond noise"]
    return "  " + " · ".join([*parts, *[f"{moved} in another place"] * (moved > 0), *alone])


def _row(one: HeadChange) -> Sequence[Cell]:
    before, after = (f"{head.layer}.{head.head}" for head in (one.before, one.after))
    place = before if before == after else f"{before} → {after}"
    if not one.statistic:
        return [place, one.role, "·", "·", "·", "·", "·"]
    label = BY_NAME[one.statistic].heading or one.statistic
    return [place, one.role, label, *one.values, Signed(one.values[1] - one.values[0]), f"{one.noise:.3f}"]
