"""`regard atlas A B`: which heads changed between two atlases, and rows of the corpus in which they disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.show.terminal.table import terminal_width
from regard.support.drawing import as_text

if TYPE_CHECKING:
    from regard.heads.atlas.difference import AtlasDifference, HeadChange

_FEW, _SHOWN, _ROWS = 12, 3, 2  # heads in the table, heads with rows, and rows of each
_LEAST = 0.05  # share of the weight of a row that is elsewhere, from which it is shown


def show_changes(first: Path, second: Path, every: bool, as_json: bool) -> AtlasDifference:
    """Print what two atlases that were saved say differently."""
    from regard.heads.atlas.difference import difference
    from regard.heads.atlas.result import load_atlas

    found = difference(load_atlas(first), load_atlas(second))
    if as_json:
        print(json.dumps(changes_as_plain(found), ensure_ascii=False))
        return found
    print()
    print(as_text(found, terminal_width(), all=every, few=_FEW, more="--all"))
    shown = [text for change in found.changed()[:_SHOWN] if (text := disagreements_as_text(change))]
    if shown:
        print("\n  Where they disagree, first and second:")
        print("\n".join(shown))
    elif found.changed():
        print("\n  No row is an example in both; over the same corpus, some are.")
    return found


def disagreements_as_text(change: HeadChange) -> str:
    """Rows in which the two heads look elsewhere; "" where no row is known of both."""
    rows = [one for one in change.disagreements() if one.share >= _LEAST][:_ROWS]
    lines = [f"\n  {change.before.layer}.{change.before.head}"] if rows else []
    for before, after, share in rows:
        lines += [f"    {share:.0%}  {before}", f"    {'':{len(f'{share:.0%}')}}  {after}"]
    return "\n".join(lines)


def changes_as_plain(found: AtlasDifference) -> list[dict[str, Any]]:
    """All heads, ready for JSON."""

    def known(value: float) -> float | None:
        return None if value != value else value

    return [
        {
            "before": f"{one.before.layer}.{one.before.head}",
            "after": f"{one.after.layer}.{one.after.head}",
            "roles": [one.before.role.name, one.after.role.name],
            "statistic": one.statistic or None,
            "values": [known(value) for value in one.values],
            "noise": known(one.noise),
            "beyond": one.beyond,
        }
        for one in found
    ]
