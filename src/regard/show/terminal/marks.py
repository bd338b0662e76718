"""Marks: which layers of a report rest on an assumption, or lack something; the same wherever heads are shown."""

from __future__ import annotations

from collections.abc import Mapping

from regard.heads.calls.call import names_in_short
from regard.heads.report.listings import HeadSummary

MARK = "*"


def marked_layers(heads: Mapping[tuple[int, int], HeadSummary]) -> set[int]:
    """The numbers of the layers of which something must be said."""
    return {layer for (layer, _), one in heads.items() if one.marks}


def mark_notes(heads: Mapping[tuple[int, int], HeadSummary]) -> list[str]:
    """What is said of them: each thing once, with the layers.

    >>> from regard.heads.report.roles import Role
    >>> one = HeadSummary(Role("mixed", 0.0, 0.0, ""), {}, 5, ("positions unknown: 64 queries attend to 16 keys",))
    >>> mark_notes({(0, 0): one, (0, 1): one, (1, 0): one})
    ['* layers 0–1: positions unknown: 64 queries attend to 16 keys']
    """
    layers: dict[str, dict[int, None]] = {}
    for (layer, _), one in heads.items():
        for mark in one.marks:
            layers.setdefault(mark, {})[layer] = None
    return [
        f"{MARK} layer{'s' * (len(those) > 1)} {names_in_short([str(i) for i in sorted(those)])}: {mark}"
        for mark, those in layers.items()
    ]
