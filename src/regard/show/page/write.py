"""A report as a page in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.attention.layer import MultiHeadAttention
from regard.files import atomically
from regard.heads.report import Seen
from regard.heads.views import Head
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.show.page.steps import trace_layer


def write_page(
    path: Path | str,
    seen: Seen,
    title: str = "",
    model: nn.Module | None = None,
    inputs: Mapping[str, Any] | None = None,
    head: Head | None = None,
) -> None:
    """Write a report to one HTML file.

    model, inputs: where its layers are regard's, the steps of the layer of `head` are in the page, too.
    """
    steps = {}
    if model is not None and head is not None and isinstance(_module(model, head), MultiHeadAttention):
        steps = {head.layer: trace_layer(model, head.layer, **(inputs or {}))}
    titled = [Titled(title, seen, text, steps=steps if text == 0 else {}) for text in range(seen.sizes()[0][0][0])]
    with atomically(path) as temporary:
        temporary.write_text(page_html(page_data(titled)), encoding="utf-8")


def _module(model: nn.Module, head: Head) -> nn.Module | None:
    """The module that the head ran in, if it has the name that the report gives it."""
    return dict(model.named_modules()).get(head.record.name)
