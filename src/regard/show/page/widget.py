"""The page as a widget in a notebook (anywidget): in Jupyter, VS Code, Colab and marimo.

The notebook holds the names of things and a picture; weights are sent when somebody opens a head. Where widgets do not
run, as on a site that shows saved notebooks, the picture is shown.
"""

import base64
import gzip
import json
from typing import Any

import anywidget
import traitlets

from regard.show.page.encode import Encoding, decode_weights
from regard.show.page.html import UNPACK, packed, read_asset, script
from regard.show.page.payload import PageData
from regard.show.page.png import head_png

# The module is unpacked when a cell is drawn; the cell may be removed before that is done.
_PACKED = packed(script("export const { renderWidget } = regardPage;"))
_RENDER = """
const load = async () => {
  const address = URL.createObjectURL(new Blob([await unpack(packed)], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
};
const draw = async (cell, removed) => {
  try {
    const { renderWidget } = await load();
    const style = document.createElement("style");
    style.textContent = await unpack(styles);
    if (removed.aborted) return;
    cell.el.append(style);
    removed.addEventListener("abort", () => style.remove());
    removed.addEventListener("abort", renderWidget(cell));
  } catch (error) {
    cell.el.append(`The page cannot be shown here: ${error.message}`);
    throw error;
  }
};
const render = (cell) => {
  const aborter = new AbortController();
  draw(cell, aborter.signal);
  return () => aborter.abort();
};
export default { render };
"""


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A page in a cell of a notebook. start: the view, layer and head to begin with, as in js/shell/state.js."""

    _esm = f'{UNPACK}const packed = "{_PACKED}", styles = "{packed(read_asset("page.css"))}";{_RENDER}'
    document = traitlets.Unicode().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, data: PageData, start: dict[str, Any] | None = None) -> None:
        super().__init__(document=json.dumps(data.document, allow_nan=False), start=start or {})
        self._data = data
        self.on_msg(self._answer)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for viewers without widgets a picture and a line about the head that it begins with."""
        bundle = super()._repr_mimebundle_(**options)
        return bundle and (bundle[0] | self._still(), bundle[1])

    def _still(self) -> dict[str, str]:
        """The first head as text, and as a picture where there is one."""
        number = int(self.start.get("report", 0))
        report = self._data.document["reports"][number]
        if not report["order"]:
            return {"text/plain": report["title"]}
        layer, head = report["order"][0]
        layer, head = int(self.start.get("layer", layer)), int(self.start.get("head", head))
        info = report["layers"][layer]
        line = f"{report['title']} · head {layer}.{head} · {info['heads'][head]['role']}"
        block = self._data.blocks.get(f"weights.{number}.{layer}.{head}")
        if block is None or not info["T"] or not info["S"]:
            return {"text/plain": line}
        weights = decode_weights(gzip.decompress(block), info["T"], info["S"], Encoding(**info["encoding"]))
        return {"text/plain": line, "image/png": base64.b64encode(head_png(weights)).decode()}

    def _answer(self, _: Any, message: Any, __: Any) -> None:
        """Send the block that the page asks for."""
        key = message.get("key") if isinstance(message, dict) else None
        if not isinstance(key, str):
            return
        if key not in self._data.blocks:
            self.send({"key": key, "error": f"{key} is not in this report."})
            return
        try:
            block = self._data.blocks[key]
        except Exception as error:  # a page that waits for an answer must get one
            self.send({"key": key, "error": f"{type(error).__name__}: {error}"})
        else:
            self.send({"key": key}, buffers=[block])
