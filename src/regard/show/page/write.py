"""A report as a page: as HTML, as a file with the steps of a layer, and as a widget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.attention.layer import MultiHeadAttention
from regard.drawing import as_page, as_widget
from regard.files import atomically
from regard.heads.report import Seen
from regard.heads.views import Head
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.show.page.steps import trace_layer
from regard.traces.trace import Trace


def titled_texts(seen: Seen, title: str, steps: Mapping[int, Trace] | None = None) -> list[Titled]:
    """A report for a page: each forward, and each text of its batch. steps: traces of layers, of the first text."""
    reports: list[Titled] = []
    for number, forward in enumerate(seen.forwards):
        texts = forward.sizes()[0][0][0]
        for text in range(texts):
            parts = [title, f"forward {number}" * (len(seen.forwards) > 1), f"text {text}" * (texts > 1)]
            chosen = steps if steps and not reports else {}
            reports.append(Titled(" · ".join(filter(None, parts)), forward, text, steps=chosen))
    if not reports:
        raise ValueError("nothing was seen yet, so there is nothing to show; call the model inside the watch block")
    return reports


def write_page(
    path: Path | str, seen: Seen, title: str, model: nn.Module, inputs: Mapping[str, Any], head: Head
) -> None:
    """Write a report to one HTML file; with the steps of the head's layer, where that is a layer of regard."""
    module = dict(model.named_modules()).get(head.record.name)
    steps = {head.layer: trace_layer(model, head.layer, **inputs)} if isinstance(module, MultiHeadAttention) else {}
    with atomically(path) as temporary:
        temporary.write_text(page_html(page_data(titled_texts(seen, title, steps))), encoding="utf-8")


@as_page.register
def _seen_as_page(seen: Seen, title: str = "") -> str:
    return page_html(page_data(titled_texts(seen, title)))


@as_widget.register
def _seen_as_widget(seen: Seen, title: str = "") -> Any:
    try:
        from regard.show.page.widget import PageWidget
    except ImportError:
        raise ImportError('a widget needs anywidget, which is not installed; pip install "regard[notebook]"') from None
    return PageWidget(page_data(titled_texts(seen, title)))
