"""A report as a page: as HTML, as a file with the steps of layers, and as a widget."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from regard.heads.change.effects import Effects
from regard.heads.report.report import Seen
from regard.heads.report.views import Head, SeenLayer, place
from regard.show.page.html import page_html
from regard.show.page.live import live_page
from regard.show.page.payload import WITHOUT_STEPS, Titled, page_data, page_on_demand
from regard.support.drawing import as_page, as_widget
from regard.support.extras import how_to_install
from regard.support.files import atomically
from regard.traces.trace import Trace

TEXTS = 8  # that a widget shows by default: each adds about 400 bytes a head to a notebook


def titled_texts(
    seen: Seen,
    title: str,
    steps: Mapping[int, Trace] | None = None,
    exact: Sequence[tuple[int, int]] = (),
    effects: Effects | None = None,
    without_steps: str = WITHOUT_STEPS,
) -> list[Titled]:
    """A report for a page: each forward, and each text of its batch. steps: traces of layers, of the first text.

    exact: heads, (layer, head), whose every weight is in the page also where the text is long. effects: what heads are
    shaded by, in all texts. without_steps: what is said of a layer without steps, {layer}.
    """
    reports: list[Titled] = []
    for number, forward in enumerate(seen.forwards):
        texts = forward.sizes()[0][0][0]
        for text in range(texts):
            parts = [title, f"forward {number}" * (len(seen.forwards) > 1), f"text {text}" * (texts > 1)]
            chosen = steps if steps and not reports else {}
            name = " · ".join(filter(None, parts))
            reports.append(Titled(name, forward, text, None, chosen, exact, effects, without_steps))
    if not reports:
        raise ValueError("nothing was seen yet, so there is nothing to show; call the model inside the watch block")
    return reports


def write_page(path: Path | str, reports: Sequence[Titled], start: Mapping[str, object] | None = None) -> None:
    """Write reports to one HTML file. start: what it shows first, parts of the state in js/shell/state.js."""
    data = page_data(reports)
    data.document["start"] = dict(start or {})
    with atomically(path) as temporary:
        temporary.write_text(page_html(data), encoding="utf-8")


@as_page.register
def _seen_as_page(
    seen: Seen,
    title: str = "",
    effects: Effects | None = None,
    steps: Mapping[int, Trace] | None = None,
    live: nn.Module | None = None,
) -> str:
    if live is not None:
        if effects is not None or steps is not None:
            raise ValueError("live=True shows what is typed, with all steps; leave effects and steps out")
        return _live_html(seen, title, live)
    return page_html(page_data(titled_texts(seen, title, steps, effects=effects)))


def _live_html(seen: Seen, title: str, model: nn.Module) -> str:
    page = live_page(model, title or "model")  # or an error that says what cannot run
    texts = seen.tokens
    if texts is None or len(texts) != 1:
        count = "no tokens are known" if texts is None else f"there are {len(texts)} texts"
        raise ValueError(f"live=True begins with one text and here {count}; watch the model on one text")
    return replace(page, text="".join(texts[0].pieces)).html()


@as_widget.register
def _seen_as_widget(
    seen: Seen,
    title: str = "",
    text: int | None = None,
    start: dict[str, Any] | None = None,
    steps: Mapping[int, Trace] | None = None,
) -> Any:
    try:
        from regard.show.page.widget import PageWidget
    except ImportError:
        raise ImportError(f"a widget needs anywidget, which is not installed; {how_to_install('notebook')}") from None
    return PageWidget(page_on_demand(_some_texts(titled_texts(seen, title, steps), text)), start)


def _some_texts(reports: Sequence[Titled], text: int | None) -> Sequence[Titled]:
    """The chosen text of every forward; by default the first few texts, whose titles say that there are more."""
    if text is not None:
        size = max(one.text for one in reports) + 1
        number = place(text, size, "text", f"there are {size}")
        return [one for one in reports if one.text == number]
    if len(reports) <= TEXTS:
        return reports
    note = f"the first {TEXTS} of {len(reports)} are here"
    return [replace(one, title=f"{one.title} · {note}") for one in reports[:TEXTS]]


@as_widget.register
def _head_as_widget(head: Head, title: str = "") -> Any:
    report, layer = _where(head)
    return _seen_as_widget(report, title, start={"layer": layer, "head": head.head})


@as_widget.register
def _layer_as_widget(layer: SeenLayer, title: str = "") -> Any:
    """All heads, with the most telling one of this layer chosen."""
    report, number = _where(layer)
    _, head = report.order(number)[0]
    return _seen_as_widget(report, title, start={"view": "heads", "layer": number, "head": head})


def _where(view: Head | SeenLayer) -> tuple[Seen, int]:
    """The forward in which this layer ran, as a report, and the number of the layer in it."""
    return next(
        (forward, layer.layer) for forward in view.seen.forwards for layer in forward if layer.record is view.record
    )
