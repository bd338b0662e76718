"""The page as a widget in a notebook (anywidget): in Jupyter, VS Code, Colab and marimo.

The notebook holds the names of things and a picture; weights are sent when somebody opens a head.
"""

from __future__ import annotations

import json
from typing import Any

import anywidget
import traitlets

from regard.show.page.html import read, script
from regard.show.page.payload import PageData


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A page in a cell of a notebook. start: the view, layer and head to begin with, as in js/state.js."""

    _esm = script("export default { render: regardPage.renderWidget };")
    _css = read("page.css")
    document = traitlets.Unicode().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, data: PageData, start: dict[str, Any] | None = None) -> None:
        super().__init__(document=json.dumps(data.document, allow_nan=False), start=start or {})
        self._blocks = data.blocks
        self.on_msg(self._answer)

    def _answer(self, _: Any, message: Any, __: Any) -> None:
        """Send the block that the page asks for."""
        key = message.get("key") if isinstance(message, dict) else None
        if not isinstance(key, str):
            return
        block = self._blocks.get(key)
        if block is None:
            self.send({"key": key, "error": f"{key} is not in this report."})
        else:
            self.send({"key": key}, buffers=[block])
