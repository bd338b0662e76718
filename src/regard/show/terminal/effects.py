"""Effects as a table: what each cut costs, the largest cost first."""

import math
from collections.abc import Sequence

from regard.heads.change.effects import Effect, Effects
from regard.show.terminal.table import (
    Cell,
    Signed,
    html_table,
    legend_table,
    signed,
    terminal_width,
    text_table,
    wrapped,
)
from regard.support.drawing import as_html, as_text

_FEW = 24  # rows unless all are asked for
_LEGEND = {
    "log p": "change of the chosen tokens' log-probability; −2.3 is a tenth",
    "loss": "by how much the loss per token grows with the cut, in nats",
    "noise": "standard error over texts; ≈ 0: the effect is within twice it",
    "costs most": "the token whose loss grows most",
}


@as_text.register
def _effects_as_text(
    effects: Effects, width: int | None = None, all: bool = False, few: int = _FEW, more: str = ".table(all=True)"
) -> str:
    width = terminal_width() if width is None else width
    order = effects.order()
    shown = order if all else order[:few]
    columns, rows = _rows(effects, shown)
    table = text_table(columns, rows, width)
    lines = [wrapped(_heading(effects), width), "", table]
    if rest := order[len(shown) :]:
        lines.append(f"  … and {len(rest)} more, {_range(rest)}: {more}")
    headings = table.splitlines()[0]
    legend = {name: text for name, text in _LEGEND.items() if f" {name}" in headings}
    return "\n".join([*lines, "", legend_table(legend, width)])


@as_html.register
def _effects_as_html(effects: Effects) -> str:
    order = effects.order()
    columns, rows = _rows(effects, order[:_FEW])
    last = f"… and {len(order) - _FEW} more: .table(all=True). " if len(order) > _FEW else ""
    legend = {name: text for name, text in _LEGEND.items() if name in columns}
    return html_table(_heading(effects), columns, rows, last, legend)


def _heading(effects: Effects) -> str:
    measured = effects.measured
    sizes, heads = [len(one) for one in measured.losses], sorted(set(measured.heads))
    counts = "–".join(map(str, dict.fromkeys((heads[0], heads[-1]))))
    tokens = "–".join(map(str, dict.fromkeys((min(sizes), max(sizes)))))
    layers = len(measured.heads)
    parts = [
        f"{layers} layer{'s' * (layers != 1)} × {counts} head{'s' * (counts != '1')}",
        f"{len(sizes)} texts × {tokens} tokens" if len(sizes) > 1 else f"{tokens} tokens",
        f"loss per token {effects.loss:.2f}",
    ]
    if measured.to != "0":
        parts.append(f"cut to {measured.to}")
    return " · ".join(parts)


def _rows(effects: Effects, shown: Sequence[Effect]) -> tuple[list[str], list[list[Cell]]]:
    """The headings of the columns, and a row for each effect."""
    chosen, several = effects.measured.chosen is not None, len(effects.measured.losses) > 1
    has_roles = any(one.role for one in shown)
    columns = ["head" if has_roles else "cut", *["role"] * has_roles, *["log p"] * chosen, "loss"]
    by_token = effects.measured.totals is None
    columns += ["noise"] * several + ["costs most"] * by_token
    rows: list[list[Cell]] = []
    for one in shown:
        numbers: list[Cell] = [*[Signed(one.logprob)] * chosen, Signed(one.loss)]
        noise = one.logprob_noise if chosen else one.noise
        noisy: list[Cell] = [f"± {noise:.2f}{' ≈ 0' if one.is_noise else ''}"] * several
        rows.append([one.name, *[one.role] * has_roles, *numbers, *noisy, *[_worst(effects, one)] * by_token])
    return columns, rows


def _worst(effects: Effects, one: Effect) -> str:
    place = one.worst()
    if place is None:
        return ""
    text, token, growth = place
    which = f" in text {text}" if len(effects.measured.losses) > 1 else ""
    return f"{effects.label(text, token)} {signed(growth, 1)}{which}"


def _range(rest: Sequence[Effect]) -> str:
    """The effects that are left out, from the smallest to the largest."""
    values = [one.loss for one in rest if not math.isnan(one.loss)]
    return f"loss {signed(min(values))} to {signed(max(values))}" if values else "without a loss"
