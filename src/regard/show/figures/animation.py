"""A head at work: the text read word by word, as one SVG file that moves by itself and loads nothing.

Each word's row of the map appears when it is read, with lines to the words it looks at. Where a reader asks for less
motion (prefers-reduced-motion), the whole map stands still.
"""

from html import escape
from typing import Any

from regard.heads.report.views import Head, place
from regard.show.figures.canvas import INK, QUIET
from regard.show.palette import POWER, WEIGHTS, palette
from regard.show.terminal.weights import short_label

LONGEST = 96  # words that fit a picture
_ROW, _CELL = 18, 17  # pixels from one word to the next, and of a cell
_WORD, _LINES, _MARGIN = 104, 150, 20  # pixels for a word, for lines, around all
_TOP = 96  # pixels above the first row
_HOLD = 2.5  # seconds that the whole map stands before it begins again
_LEAST = 0.03  # of a weight that has a line
_ACCENT = "#bf1238"


def animated_svg(head: Head, title: str = "", text: int = 0, seconds: float = 0.35) -> str:
    """The animation of one text; seconds: for each word."""
    if not 0.02 <= seconds <= 60:
        raise ValueError(f"seconds={seconds} must be between 0.02 and 60, the time for each word")
    texts, _, T, S = head.record.sizes
    text = place(text, texts, "text", f"there are {texts}")
    if max(T, S) > LONGEST:
        raise ValueError(f"an animation shows at most {LONGEST} tokens and this text has {max(T, S)}; read fewer")
    weights = head.weights(text=text)[0].float().cpu().numpy()
    visible = head.visible()[text].cpu().numpy()
    names = [
        [str(i) for i in range(size)]
        if known is None
        else [piece.strip() or name for piece, name in zip(known[text].pieces, known[text].names, strict=True)]
        for known, size in ((head.query_tokens, T), (head.key_tokens, S))
    ]
    rows, cols = ([short_label(name, 13) for name in side] for side in names)
    total = T * seconds + _HOLD
    left = _MARGIN + 2 * _WORD + _LINES  # of the map
    width, height = left + S * _CELL + _MARGIN, _TOP + max(T, S) * _ROW + _MARGIN
    parts = [_style(T, seconds, total), f'<rect width="{width}" height="{height}" fill="#fdfdfb"/>']
    heading = f"{title}  head {head.layer}.{head.head}, {head.role.name}".strip()
    parts.append(f'<text x="{_MARGIN}" y="34" class="title">{escape(heading)}</text>')
    parts += [_word(_MARGIN + _WORD - 8, key, name, "end") for key, name in enumerate(cols)]
    parts += [_word(_MARGIN + _WORD + _LINES + 8, query, name, "start") for query, name in enumerate(rows)]
    parts += [_upright(left, key, name) for key, name in enumerate(cols)]
    for query in range(T):
        parts.append(_row(left, query, weights[query], visible[query]))
        parts.append(
            _reading(left, query, weights[query], rows[query], int(visible[query].nonzero()[0].max(initial=0)))
        )
    body = "\n".join(parts)
    label = escape(f"Head {head.layer}.{head.head} reads {T} tokens, one after the other", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{label}">\n{body}\n</svg>\n'
    )


def _style(T: int, seconds: float, total: float) -> str:
    frames = []
    for query in range(T):
        start, end = 100 * query * seconds / total, 100 * (query + 1) * seconds / total
        end = 100.0 if query == T - 1 else end
        before = f"0%,{start:.3f}%{{opacity:0}}" if query else "0%{opacity:1}"
        frames.append(f"@keyframes r{query}{{{before}{start + 0.01:.3f}%,100%{{opacity:1}}}}")
        after = f"{end:.3f}%,100%{{opacity:0}}" if query < T - 1 else ""
        frames.append(f"@keyframes n{query}{{{before}{start + 0.01:.3f}%,{end - 0.01:.3f}%{{opacity:1}}{after}}}")
        frames.append(f".r{query}{{animation:r{query} {total:g}s step-end infinite}}")
        frames.append(f".n{query}{{animation:n{query} {total:g}s step-end infinite}}")
    return (
        "<style>text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;"
        f"fill:{QUIET}}}.title{{font-size:18px;font-weight:600;fill:{INK}}}.now{{fill:{_ACCENT};font-weight:600}}"
        f".box{{fill:none;stroke:{_ACCENT};stroke-width:1.5}}path{{fill:none}}"
        + "".join(frames)
        + "@media (prefers-reduced-motion:reduce){g{animation:none!important}.reading{display:none}}</style>"
    )


def _word(x: float, place: int, name: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{_TOP + (place + 0.5) * _ROW + 4:g}" text-anchor="{anchor}">{escape(name)}</text>'


def _upright(left: float, key: int, name: str) -> str:
    x = left + (key + 0.5) * _CELL + 4
    return f'<text transform="translate({x:g} {_TOP - 8}) rotate(-90)">{escape(name)}</text>'


def _row(left: float, query: int, weights: Any, visible: Any) -> str:
    """The cells of a word's row; a hidden key has none."""
    y = _TOP + query * _ROW
    cells = "".join(
        f'<rect x="{left + key * _CELL}" y="{y}" width="{_CELL - 1}" height="{_ROW - 1}" fill="{_color(weight)}"/>'
        for key, weight in enumerate(weights)
        if visible[key]
    )
    return f'<g class="r{query}">{cells}</g>'


def _reading(left: float, query: int, weights: Any, name: str, last: int) -> str:
    """What is seen while a word is read: its name, its row up to the last visible key, and lines to where it looks."""
    a, b = _MARGIN + _WORD + _LINES, _MARGIN + _WORD
    y = _TOP + (query + 0.5) * _ROW
    middle = (a + b) / 2
    lines = "".join(
        f'<path d="M{a} {y:g}C{middle:g} {y:g} {middle:g} {to:g} {b} {to:g}" '
        f'stroke="{_color(max(weight, 0.1))}" stroke-width="{max(1.0, 9 * float(weight)):.1f}"/>'
        for key, weight in sorted(enumerate(weights), key=lambda pair: float(pair[1]))
        if weight >= _LEAST
        for to in [_TOP + (key + 0.5) * _ROW]
    )
    wide, top = (last + 1) * _CELL + 1, _TOP + query * _ROW - 1
    box = f'<rect class="box" x="{left - 1}" y="{top}" width="{wide}" height="{_ROW + 1}"/>'
    word = f'<text class="now" x="{a + 8}" y="{y + 4:g}">{escape(name)}</text>'
    under = f'<rect x="{a + 6}" y="{y - 9:g}" width="{_WORD - 10}" height="{_ROW}" fill="#fdfdfb"/>'
    return f'<g class="reading n{query}">{lines}{under}{word}{box}</g>'


def _color(weight: Any) -> str:
    step = round(min(1.0, max(0.0, float(weight))) ** POWER * (len(_COLORS) - 1))
    return str(_COLORS[step])


_COLORS = [f"#{''.join(f'{round(255 * float(c)):02x}' for c in color)}" for color in palette(WEIGHTS, 256)]
