"""A learner's own model: its loss as a curve in the terminal, what it wrote, its heads; and the page to keep."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from regard.school.drawing.verdicts import html_document
from regard.show.terminal.table import html_table, text_table, wrapped

_LEVELS = "▁▂▃▄▅▆▇█"
_ROWS = 6  # lines of the curve in a terminal
_MOST_HEADS = 4  # that are listed in a terminal
_STYLE = (
    "<style>svg{max-width:100%;height:auto}text{fill:currentColor;font:12px system-ui,sans-serif}"
    "pre{white-space:pre-wrap;background:#8881;padding:1em;border-radius:6px}"
    ".book{stroke:#2a6fdb;fill:none;stroke-width:2}.list{stroke:#d9632a;fill:none;stroke-width:2}"
    ".cell{fill:#2a6fdb}@media(prefers-color-scheme:dark){.book{stroke:#7fb0ff}.cell{fill:#7fb0ff}}</style>"
)
Result = Mapping[str, Any]


def head_sentence(result: Result) -> str:
    """Did a head learn to copy?

    >>> head = {"head": "1.0", "induction": 0.71, "previous": 0.03, "learned": True}
    >>> head_sentence({"heads": [head]})
    'Head 1.0 of your model learned to copy: 0.71 of its weight is on the token after the earlier one.'
    """
    heads = result["heads"]
    if not heads:
        return "Your layer could not be watched: regard found no softmax in it whose weights it knows."
    best = heads[0]
    if best["learned"]:
        return (
            f"Head {best['head']} of your model learned to copy: {best['induction']:.2f} of its weight is on the token "
            "after the earlier one."
        )
    return (
        f"No head learned to copy yet. The nearest is {best['head']}, with {best['induction']:.2f} of its weight "
        "on the token after the earlier one. Train it longer: --minutes"
    )


def curve_text(curve: Sequence[Mapping[str, float]], key: str, width: int) -> str:
    """A loss as bars, with the largest and the smallest beside it.

    >>> print(curve_text([{"step": 0, "book": 6.0}, {"step": 50, "book": 3.0}, {"step": 100, "book": 2.0}], "book", 30))
      6.00  █
            █
            █
            █▂
            ██
      2.00  ███
            step 0 to 100
    """
    columns = max(min(len(curve), width - 10), 2)
    places = [round(at * (len(curve) - 1) / (columns - 1)) for at in range(columns)]
    values = [curve[at][key] for at in places]
    low, high = min(values), max(values)
    heights = [(value - low) / ((high - low) or 1.0) * (_ROWS - 1) + 1 for value in values]
    lines = []
    for row in reversed(range(_ROWS)):
        label = f"{high:.2f}" if row == _ROWS - 1 else f"{low:.2f}" if row == 0 else ""
        bars = "".join(_bar(height - row) for height in heights)
        lines.append(f"  {label:>4}  {bars}".rstrip())
    return "\n".join([*lines, f"        step {curve[0]['step']} to {curve[-1]['step']}"])


def _bar(filled: float) -> str:
    return " " if filled <= 0.06 else _LEVELS[min(int(filled * 8), 8) - 1 if filled >= 0.125 else 0]


def spoken_text(result: Result, width: int) -> str:
    """What came of it, for a terminal."""
    first, last = result["curve"][0], result["curve"][-1]
    blocks = [
        wrapped(
            f"{last['step']} steps in {result['seconds']:.0f} s. Loss on pages that it has not read: "
            f"{first['book']:.2f} → {last['book']:.2f}; on a list of words that it reads again: "
            f"{first['list']:.2f} → {last['list']:.2f}.",
            width,
        ),
        curve_text(result["curve"], "list", width),
        "  It writes:\n\n" + wrapped(" ".join(result["text"].split()), width, "    ", "    "),
        wrapped(head_sentence(result), width),
    ]
    if result["heads"]:
        rows = [
            [one["head"], f"{one['induction']:.2f}", f"{one['previous']:.2f}"] for one in result["heads"][:_MOST_HEADS]
        ]
        blocks.append(text_table(["head", "token after the earlier one", "token before"], rows, width))
        blocks += _cat_text(result, width)
    return "\n\n".join(blocks)


def _cat_text(result: Result, width: int) -> list[str]:
    """The sentence of the course as the learner's own head reads it; nothing where it does not fit."""
    from torch import tensor

    from regard.show.terminal.weights import shaded_table

    words, weights = result["picture"]["cat"]["words"], result["picture"]["cat"]["weights"]
    lines = shaded_table(tensor(weights), words, words) if words else []
    if not lines or max(map(len, lines)) + 2 > width:
        return []
    return [wrapped(_cat_says(result), width), "\n".join(f"  {line}" for line in lines)]


def _cat_says(result: Result) -> str:
    says = f"The sentence that you began with, read twice by head {result['heads'][0]['head']} of your own model."
    return f"{says} A head that copies looks from a word to the one that followed it before, from cat to sat:"


def spoken_page(result: Result, book: str, when: str) -> str:
    """One HTML document with the text, the curve and the picture of the head."""
    first, last = result["curve"][0], result["curve"][-1]
    sizes = f"{result['parameters']:,} parameters, trained on {result['tokens']:,} tokens of {book}, {when}."
    heads = [[one["head"], f"{one['induction']:.2f}", f"{one['previous']:.2f}"] for one in result["heads"]]
    losses = (
        f"{last['step']} steps in {result['seconds']:.0f} seconds. Loss on pages that it has not read: "
        f"{first['book']:.2f} → {last['book']:.2f}. On a list of random words that it reads again: "
        f"{first['list']:.2f} → {last['list']:.2f}. Where this one falls, the model has learned to copy."
    )
    parts = [
        _STYLE,
        f"<p>{html.escape(sizes)}</p><h2>It writes</h2><pre>{html.escape(result['text'])}</pre>",
        f"<h2>It learned</h2>{_curve_svg(result['curve'])}<p>{html.escape(losses)}</p>",
        f"<h2>Its heads</h2><p>{html.escape(head_sentence(result))}</p>",
    ]
    if result["picture"]["weights"]:
        name = result["heads"][0]["head"]
        parts.append(_head_svg(result["picture"]["words"], result["picture"]["weights"], name))
        cat = result["picture"]["cat"]
        parts.append(_head_svg(cat["words"], cat["weights"], name, _cat_says(result)))
        parts.append(
            html_table("Mean weight of every head:", ["head", "token after the earlier one", "token before"], heads)
        )
    return html_document("My own GPT", "".join(parts))


def _curve_svg(curve: Sequence[Mapping[str, float]], width: int = 680, height: int = 260) -> str:
    top = max(max(one["book"], one["list"]) for one in curve)
    last = curve[-1]["step"] or 1

    def x(step: float) -> float:
        return 40 + (width - 160) * step / last

    def y(loss: float) -> float:
        return 10 + (height - 40) * (1 - loss / top)

    lines = []
    for key, name in (("book", "new pages"), ("list", "a list again")):
        points = " ".join(f"{x(one['step']):.1f},{y(one[key]):.1f}" for one in curve)
        end = y(curve[-1][key])
        lines.append(
            f'<polyline class="{key}" points="{points}"/><text x="{x(last) + 8:.0f}" y="{end + 4:.0f}">{name}</text>'
        )
    ticks = "".join(
        f'<text x="4" y="{y(loss) + 4:.0f}">{loss}</text><path d="M36 {y(loss):.1f}H{width - 120}" stroke="#8884"/>'
        for loss in range(int(top) + 1)
    )
    axis = f'<text x="40" y="{height - 8}">step 0</text>'
    axis += f'<text x="{x(last) - 60:.0f}" y="{height - 8}">step {last:.0f}</text>'
    ends = f"new pages end at {curve[-1]['book']:.2f}, a list again at {curve[-1]['list']:.2f}"
    about = f"The loss from step 0 to {last:.0f}: {ends}."
    return _svg(width, height, about, ticks + axis + "".join(lines))


def _head_svg(
    words: Sequence[str], weights: Sequence[Sequence[float]], name: str, about: str = "", cell: int = 24
) -> str:
    left, size = 90, cell * len(words)
    marks = []
    for i, word in enumerate(words):
        at = left + cell * i + cell / 2
        marks.append(
            f'<text x="{left - 6}" y="{left + cell * i + cell * 0.7:.0f}" text-anchor="end">{html.escape(word)}</text>'
        )
        marks.append(f'<text transform="translate({at + 4:.0f} {left - 6}) rotate(-60)">{html.escape(word)}</text>')
    for i, row in enumerate(weights):
        for j, weight in enumerate(row[: i + 1]):
            place = f'x="{left + cell * j}" y="{left + cell * i}" width="{cell - 1}" height="{cell - 1}"'
            says = html.escape(f"{words[i]} looks at {words[j]}: {weight:.2f}")
            marks.append(
                f'<rect {place} fill="#8882"/><rect class="cell" {place} opacity="{max(weight, 0):.2f}">'
                f"<title>{says}</title></rect>"
            )
    about = about or (
        f"Head {name} on some words, read twice: a row for each word that looks, a column for each that it looks at."
    )
    return f"<p>{html.escape(about)}</p>" + _svg(left + size + 60, left + size + 8, about, "".join(marks))


def _svg(width: int, height: int, about: str, inside: str) -> str:
    label = html.escape(about, quote=True)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg {size} role="img" aria-label="{label}">{inside}</svg>'
