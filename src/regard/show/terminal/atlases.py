"""An atlas as a table: every head with its role, how much of the corpus it does that in, and its means."""

import math
from collections.abc import Sequence

from regard.heads.atlas.result import Atlas, AtlasHead
from regard.show.terminal.heads import head_rows, legend, mark_notes, plural
from regard.show.terminal.table import Cell, Signed, html_table, legend_table, terminal_width, text_table
from regard.support.drawing import as_html, as_text

_FEW = 24  # rows unless all are asked for
_LEGEND = {
    "rows": "share of single rows that do this job; position is no job of a row",
    "texts": "share of texts in which it has its most frequent role",
    "probe": "induction score on repeated random tokens",
    "effect": "by how much the loss per token grows without the head, in a sample",
}


@as_text.register
def _atlas_as_text(
    atlas: Atlas, width: int | None = None, all: bool = False, few: int = _FEW, more: str = "atlas.table(all=True)"
) -> str:
    width = terminal_width() if width is None else width
    if not len(atlas):
        return "  nothing was read yet"
    columns, rows = _rows(atlas)
    shown = rows if all else rows[:few]
    table = text_table(columns, shown, width)
    rest = [f"  … and {len(rows) - len(shown)} more: {more}"] if len(shown) < len(rows) else []
    fitting = table.splitlines()[0].split()
    entries = {name: text for name, text in (_LEGEND | legend(columns)).items() if name in fitting}
    notes = mark_notes(atlas.portraits())
    return "\n".join([_heading(atlas), "", table, *rest, "", legend_table(entries, width), *notes])


@as_html.register
def _atlas_as_html(atlas: Atlas) -> str:
    if not len(atlas):
        return "<p>nothing was read yet</p>"
    columns, rows = _rows(atlas)
    last = f"… and {len(rows) - _FEW} more: atlas.table(all=True). " if len(rows) > _FEW else ""
    entries = {name: text for name, text in (_LEGEND | legend(columns)).items() if name in columns}
    return html_table(_heading(atlas).strip(), columns, rows[:_FEW], last, entries, mark_notes(atlas.portraits()))


def _heading(atlas: Atlas) -> str:
    heads = sum(layer.heads for layer in atlas.layers)
    counts = (plural(str(len(atlas)), "layer"), plural(str(heads), "head"), plural(f"{atlas.texts:,}", "text"))
    return "  " + " · ".join([*filter(None, [atlas.model]), *counts, plural(f"{atlas.tokens:,}", "token")])


def _rows(atlas: Atlas) -> tuple[list[str], list[list[Cell]]]:
    """The headings, and a row for each head: as of a report, and after the role what the corpus adds."""
    heads, portraits = atlas.heads(), atlas.portraits()
    columns, rows = head_rows({(one.layer, one.head): portraits[one.layer, one.head] for one in heads})
    has = [all(getattr(layer, name) is not None for layer in atlas.layers) for name in ("probed", "costs")]
    added = [_added(one, *has) for one in heads]
    names = ["rows", "texts", *["probe"] * has[0], *["effect"] * has[1]]
    return [*columns[:2], *names, *columns[2:]], [
        [*row[:2], *more, *row[2:]] for row, more in zip(rows, added, strict=True)
    ]


def _added(head: AtlasHead, is_probed: bool, has_effect: bool) -> Sequence[Cell]:
    share = head.jobs.get(head.role.name, math.nan if head.role.name == "position" else 0.0)
    shares: list[Cell] = ["·" if math.isnan(one) else f"{one:.0%}" for one in (share, head.stability)]
    effect: list[Cell] = [Signed(head.effect[0])] if has_effect else []
    return [*shares, *([head.probe["induction"]] if is_probed else []), *effect]
