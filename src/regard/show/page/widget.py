"""The page as a widget in a notebook (anywidget): in Jupyter, VS Code, Colab and marimo.

The notebook holds the names of things and a picture; the page's code is sent when a cell is drawn, and weights when
somebody opens a head. Where widgets do not run, as on a site that shows saved notebooks, the picture is shown.
"""

import base64
import gzip
import json
from functools import cache
from typing import Any

import anywidget
import traitlets

from regard.show.page.encode import Encoding, decode_weights
from regard.show.page.html import read_asset, script
from regard.show.page.payload import PageData
from regard.show.page.png import head_png

SCRIPT, STYLES = "script", "styles"  # what a cell asks for first, as for any block

# All that a notebook keeps of the page's code; the kernel sends the rest when a cell is drawn. That may be late, as a
# kernel answers between cells, and the cell may be removed before.
_RENDER = """
const PATIENCE = 3000;
const WAITS = "Waiting for the kernel. If it was stopped, run this cell again.";
const ask = (model, key, removed) => new Promise((answer, fail) => {
  const hear = (message, buffers) => {
    if (message.key !== key) return;
    model.off("msg:custom", hear);
    if (message.error) fail(new Error(message.error));
    else answer(new Response(new Response(buffers[0]).body.pipeThrough(new DecompressionStream("gzip"))).text());
  };
  model.on("msg:custom", hear);
  removed.addEventListener("abort", () => model.off("msg:custom", hear));
  model.send({ key });
});
const load = async (source) => {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
};
const draw = async (cell, removed) => {
  const note = document.createElement("p");
  const late = setTimeout(() => cell.el.append(Object.assign(note, { textContent: WAITS })), PATIENCE);
  const settle = () => { clearTimeout(late); note.remove(); };
  removed.addEventListener("abort", settle);
  try {
    const [source, styles] = await Promise.all(["script", "styles"].map((key) => ask(cell.model, key, removed)));
    const { renderWidget } = await load(source);
    settle();
    if (removed.aborted) return;
    const style = Object.assign(document.createElement("style"), { textContent: styles });
    cell.el.append(style);
    removed.addEventListener("abort", () => style.remove());
    removed.addEventListener("abort", renderWidget(cell));
  } catch (error) {
    settle();
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


@cache
def page_code() -> dict[str, bytes]:
    """The page's script and styles, as blocks that a cell asks for."""
    texts = {SCRIPT: script("export const { renderWidget } = regardPage;"), STYLES: read_asset("page.css")}
    return {name: gzip.compress(text.encode(), mtime=0) for name, text in texts.items()}


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A page in a cell of a notebook. start: the view, layer and head to begin with, as in js/shell/state.js."""

    _esm = _RENDER
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
        blocks = page_code() if key in (SCRIPT, STYLES) else self._data.blocks
        if key not in blocks:
            self.send({"key": key, "error": f"{key} is not in this report."})
            return
        try:
            block = blocks[key]
        except Exception as error:  # a page that waits for an answer must get one
            self.send({"key": key, "error": f"{type(error).__name__}: {error}"})
        else:
            self.send({"key": key}, buffers=[block])
