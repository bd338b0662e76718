"""A training run as a table: at each step the loss, and the heads that come closest to induction and previous token."""

import math

from regard.heads.atlas.result import AtlasHead
from regard.heads.atlas.timeline import MANY, Moment, Timeline
from regard.heads.report.roles import PATTERN
from regard.show.terminal.table import Cell, html_table, legend_table, terminal_width, text_table
from regard.support.drawing import as_html, as_text

_FEW = 40
_NAMED = 3  # heads that learned something
_COLUMNS = ("step", "loss", "induction", "probe", "corpus", "previous", "probe", "corpus")
_LEGEND = {
    "loss": "of that step",
    "induction, previous": "the head with the largest score",
    "probe": "its score on repeated random tokens",
    "corpus": "its mean weight in validation text ± standard error",
    "learned": f"from there on the probe is above {PATTERN} by {MANY:g} standard errors",
}


@as_text.register
def _timeline_as_text(
    run: Timeline, width: int | None = None, all: bool = False, few: int = _FEW, more: str = ".table(all=True)"
) -> str:
    width = terminal_width() if width is None else width
    shown = list(run) if all or len(run) <= few else _spread(run, few)
    rest = [f"  … {len(run) - len(shown)} steps are left out: {more}"] if len(shown) < len(run) else []
    table = text_table(_COLUMNS, [_row(one) for one in shown], width)
    return "\n".join([table, *rest, "", *_moments(run), "", legend_table(_LEGEND, width)])


@as_html.register
def _timeline_as_html(run: Timeline) -> str:
    rows = [_row(one) for one in _spread(run, _FEW)]
    return html_table(" ".join(one.strip() for one in _moments(run)), list(_COLUMNS), rows, "", _LEGEND)


def _spread(run: Timeline, few: int) -> list[Moment]:
    """So many moments, from the first to the last."""
    places = {round(i * (len(run) - 1) / max(1, few - 1)) for i in range(min(few, len(run)))}
    return [run[place] for place in sorted(places)]


def _moments(run: Timeline) -> list[str]:
    """When heads of a kind appeared."""
    lines = []
    for score in ("previous", "induction"):
        found = run.births(score)
        heads = ", ".join(f"{one.layer}.{one.head} from step {one.step:,}" for one in found[:_NAMED])
        heads += f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        what = f"learned it: {heads}" if found else f"no head learned it in this run ({run[-1].step:,} steps)"
        lines.append(f"  {score}: {what}")
    return lines


def _row(one: Moment) -> list[Cell]:
    cells: list[Cell] = [f"{one.step:,}", "·" if math.isnan(one.loss) else f"{one.loss:.3f}"]
    for score in ("induction", "previous"):
        head, value = one.best(score)
        mean, error = head.over_texts(score)
        corpus = "·" if math.isnan(mean) else f"{mean:.2f} ± {error:.2f}"
        cells += [_name(head), value, corpus]
    return cells


def _name(head: AtlasHead) -> str:
    return f"{head.layer}.{head.head}"
