"""The widget without a browser: what it answers, what it holds, and what is shown where widgets do not run."""

import base64
import gzip
import json

import pytest
import torch
from chromium import chromium, needs_chromium

import regard
from regard.show.page.encode import Encoding, decode_weights
from regard.show.page.payload import BlocksOnDemand, PageData, Titled, page_data, page_on_demand
from regard.support.tokens import TextTokens

pytest.importorskip("anywidget")

from regard.show.page.widget import PageWidget, page_code


@pytest.fixture(scope="module")
def seen():
    layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=None, dropout=0.0, num_heads=3)
    with torch.no_grad(), regard.watch(layer) as report:
        layer(torch.randn(1, 7, 12))
    return report


@pytest.fixture
def widget(seen):
    tokens = TextTokens(["The", " cat", " sat", " on", " the", " mat", "."])
    one = PageWidget(page_data([Titled("cat", seen, tokens=tokens)]))
    one.sent = []
    one.send = lambda content, buffers=None: one.sent.append((content, buffers))
    yield one
    one.close()


def ask(widget, content):
    """What the page sends, as ipywidgets delivers it."""
    widget._handle_custom_msg(content, [])
    return widget.sent


def test_a_block_is_sent_when_it_is_asked_for(widget, seen):
    [(content, [block])] = ask(widget, {"key": "weights.0.0.2"})
    assert content == {"key": "weights.0.0.2"}
    read = decode_weights(gzip.decompress(block), 7, 7, Encoding("linear16", triangle=True))
    torch.testing.assert_close(torch.from_numpy(read).nan_to_num().float(), seen[0, 2].weights()[0], atol=1e-5, rtol=0)


def test_an_unknown_block_is_an_error_with_its_name(widget):
    assert ask(widget, {"key": "weights.0.9.9"}) == [
        ({"key": "weights.0.9.9", "error": "weights.0.9.9 is not in this report."}, None)
    ]


@pytest.mark.parametrize("content", [{}, {"key": 3}, {"key": ["weights.0.0.0"]}, {"key": None}, [], "weights.0.0.0"])
def test_nothing_but_a_name_is_answered(widget, content):
    assert ask(widget, content) == []


def test_the_state_holds_names_and_no_weights(widget):
    state = widget.get_state()
    assert json.loads(state["document"])["reports"][0]["title"] == "cat"
    assert not any(isinstance(value, bytes) for value in state.values())
    assert 20 * sum(len(str(value)) for value in state.values()) < 200_000  # of 20 widgets in a notebook


# A cell of a notebook as anywidget sees it: the module, a model that answers, and what is left once it is removed.
CELL = """async ([source, document, blocks, waits]) => {
  const widget = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const listeners = new Set();
  const answer = ({ key }) => {
    const bytes = Uint8Array.from(atob(blocks[key]), (one) => one.charCodeAt(0));
    for (const act of listeners) act({ key }, [new DataView(bytes.buffer)]);
  };
  const model = {
    get: (name) => ({ document, start: { view: "head" } })[name],
    send: (content) => setTimeout(() => answer(content)),
    on: (_, act) => listeners.add(act),
    off: (_, act) => listeners.delete(act),
  };
  const el = globalThis.document.body.appendChild(globalThis.document.createElement("div"));
  const remove = widget.default.render({ model, el });
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  while (waits && !el.querySelector("[data-ready]")) await wait(20);
  const drawn = el.querySelectorAll("canvas").length;
  remove();
  await wait(500);
  return { drawn, left: el.childNodes.length, listeners: listeners.size };
}"""


@needs_chromium
@pytest.mark.parametrize("waits", [False, True])
def test_a_cell_is_drawn_and_leaves_nothing_also_when_it_is_removed_at_once(widget, waits):
    blocks = {key: base64.b64encode(block).decode() for key, block in (page_code() | widget._data.blocks).items()}
    with chromium() as browser:
        tab = browser.new_page()
        errors = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        result = tab.evaluate(CELL, [str(widget._esm), widget.document, blocks, waits])
    assert (result["left"], result["listeners"], errors) == (0, 0, [])
    assert (result["drawn"] > 0) == waits


def test_viewers_without_widgets_get_a_picture_and_a_line(widget, seen):
    bundle, _ = widget._repr_mimebundle_()
    layer, head = seen.order()[0]
    assert bundle["text/plain"] == f"cat · head {layer}.{head} · {seen[layer, head].role.name}"
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.model_id


def test_the_picture_is_of_the_head_to_begin_with(seen):
    widget = PageWidget(page_data([Titled("cat", seen)]), start={"layer": 0, "head": 1})
    assert widget._repr_mimebundle_()[0]["text/plain"].startswith("cat · head 0.1 · ")
    widget.close()


def failing():
    raise MemoryError("the map does not fit")


def test_a_block_that_cannot_be_computed_is_answered_with_the_reason(seen):
    blocks = BlocksOnDemand({"strongest.0": failing})
    widget = PageWidget(PageData(page_on_demand([Titled("cat", seen)]).document, blocks))
    widget.sent = []
    widget.send = lambda content, buffers=None: widget.sent.append((content, buffers))
    assert ask(widget, {"key": "strongest.0"}) == [
        ({"key": "strongest.0", "error": "MemoryError: the map does not fit"}, None)
    ]
    widget.close()
