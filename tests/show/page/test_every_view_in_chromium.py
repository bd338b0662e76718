"""All seven views on one page: access, width, steadiness, questions, files. One browser; each test loops inside it."""

import os
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from chromium import needs_chromium, opened

import regard
from regard.show.page.payload import Titled
from regard.show.page.write import write_page
from regard.support.tokens import TextTokens
from regard.traces.trace import trace_layers

pytestmark = [pytest.mark.slow, needs_chromium]

VIEWS = ("heads", "head", "layer", "flow", "steps", "long", "compare")
ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)
LAYER = 4
SVG = "{http://www.w3.org/2000/svg}"
AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two reports of more than 100 tokens, the second with one projection halved; both with the steps of one layer."""
    model = regard.GPT.from_pretrained("tiny")
    ids = model.tokenizer.encode(ALICE * 3)
    reports = []
    for title in ("tiny", "halved"):
        with torch.no_grad(), regard.watch(model) as seen:
            model(torch.tensor([ids]))
        steps = trace_layers(model, {"ids": torch.tensor([ids])}, [LAYER])
        reports.append(Titled(title, seen, tokens=TextTokens(model.tokenizer.pieces(ids)), steps=steps))
        next(one for name, one in model.named_modules() if name.endswith("out_proj")).weight.data *= 0.5
    path = tmp_path_factory.mktemp("pages") / "page.html"
    write_page(path, reports, {"layer": LAYER, "head": 3})
    return path


def show(page, view, **state):
    """Show a view of the page that is open, and wait for what it loads."""
    parts = "&".join([f"view={view}", f"head={LAYER}.3", *(f"{name}={value}" for name, value in state.items())])
    page.tab.evaluate("hash => { location.hash = hash }", parts)
    page.tab.wait_for_selector(f'#regard[data-view="{view}"]')
    if view == "steps":
        page.tab.wait_for_selector(f'.columns[data-ready$="{LAYER}.3"] .step-rows li')
    if view == "compare":
        page.tab.wait_for_selector(".compare[data-compared]")
    if view in ("layer", "flow"):
        page.tab.wait_for_selector(".view > .columns[data-ready]")


def test_every_view_opens_with_a_question_and_an_answer_of_position_and_numbers(browser, file):
    with opened(browser, file) as page:
        for view in VIEWS:
            show(page, view)
            assert page.text("h1").endswith("?")
            answer = page.text(".ask p")
            assert re.search(r"\d\.\d", answer)
            assert not re.search(r"\b(because|important|explains|understands|means|wants)\b", answer)


@pytest.mark.skipif(not AXE.is_file() and not os.environ.get("REGARD_NEEDS_CHROMIUM"), reason="needs npm ci")
@pytest.mark.parametrize("colors", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}])
def test_axe_finds_nothing_in_any_state_of_any_view(browser, file, colors):
    violations = []
    with opened(browser, file, **colors) as page:
        page.tab.evaluate(f"{AXE.read_text()};0")

        def check(state):
            found = page.tab.evaluate("axe.run({ rules: { 'target-size': { enabled: true } } })")["violations"]
            violations.extend(f"{state}: {one['id']}: {one['nodes'][0]['html']}" for one in found)

        for view in VIEWS:
            show(page, view)
            check(view)
            show(page, view, looks=25, words="true")
            check(f"{view} with a pin, by words")
        page.tab.keyboard.press("/")
        page.tab.keyboard.type("sister")
        check("find")
        page.tab.keyboard.press("Escape")
        page.tab.keyboard.press("?")
        check("legend")
    assert violations == []


def test_nothing_is_wider_than_the_window_in_any_view(browser, file):
    wide = []
    with opened(browser, file) as page:
        for width in (360, 390, 600, 861, 1161, 1440, 2560, 3840):
            page.tab.set_viewport_size({"width": width, "height": 900})
            for view in VIEWS:
                show(page, view)
                if page.tab.evaluate("document.documentElement.scrollWidth") > width:
                    wide.append((view, width))
    assert wide == []


# Points at every tenth word of the text and at places all over each map, and says what moved. Everything that has words
# of its own is watched, and every control; not what shows the answer: the sentences, and the words that are looked at.
POINT = """() => {
  const changing =
    ".ask h1 *, .ask p *, .said *, .whose, .looked td *, .live, .for-readers, .readout, .numbers, .preview, dialog, " +
    "[data-narrow] .keys-of *, .regard:not([data-narrow]) .keys-of";
  const root = document.getElementById("regard");
  const boxes = [...root.querySelectorAll("*")].filter((node) => {
    const words = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const places = "h1, h2, .ask, .ask p, button, select, input, canvas, section, svg, table, li";
    const watched = words || node.matches(places);
    return watched && !node.closest(changing);
  }).map((node) => ({ node, text: node.textContent, box: node.getBoundingClientRect() }))
    .filter(({ box }) => box.width);
  const points = [...document.querySelectorAll(".text .unit")].filter((_, i) => i % 5 === 0).map((node) => {
    const box = node.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  });
  for (const grid of document.querySelectorAll(".map-grid, svg.lines, .step-rows, .heads, .picker")) {
    const box = grid.getBoundingClientRect();
    for (let i = 0; i < 10; i++)
      points.push([box.x + (box.width * (i + 0.5)) / 11, box.y + (box.height * (i + 0.6)) / 10]);
  }
  const observer = new MutationObserver(() => {});
  observer.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
  let [most, again, pointed] = [0, 0, 0];
  const moved = new Set();
  for (const [x, y] of points) {
    const target = document.elementFromPoint(x, y);
    if (!target || !root.contains(target)) continue;
    pointed++;
    const point = () => {
      for (const kind of ["pointerover", "pointermove"])
        target.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: x, clientY: y }));
      return new Set(observer.takeRecords().flatMap((one) => [one.target, ...one.addedNodes])).size;
    };
    most = Math.max(most, point());
    again += point();
    for (const { node, text, box } of boxes) {
      const now = node.getBoundingClientRect();
      if (!node.isConnected || !now.width) continue;
      const names = node.textContent === text ? ["x", "y", "width", "height"] : ["y", "height"];
      const off = names.filter((name) => Math.abs(now[name] - box[name]) > 0.6);
      const said = off.map((one) => `${one} ${box[one].toFixed(1)} → ${now[one].toFixed(1)}`);
      const name = `${node.tagName}.${node.getAttribute("class") ?? ""}`;
      if (off.length) moved.add(`${name} “${text.trim().slice(0, 20)}” ${said}`);
    }
  }
  return { moved: [...moved], most, again, pointed, all: root.querySelectorAll("*").length };
}"""


@pytest.mark.parametrize("width", [390, 1440])
def test_pointing_moves_no_word_and_touches_only_what_changed(browser, file, width):
    with opened(browser, file, viewport={"width": width, "height": 2500}) as page:
        for view in VIEWS:
            show(page, view)
            result = page.tab.evaluate(POINT)
            assert result["pointed"] >= 20
            assert result["moved"] == []
            assert result["again"] == 0
            assert result["most"] < result["all"] / 2


# What can be chosen by a click, and what Tab has reached.
CONTROLS = """() => {
  window.reached = new Set();
  document.addEventListener("focusin", (event) => window.reached.add(event.target));
}"""
UNREACHED = """() => [...document.querySelectorAll(
    "#regard button, #regard select, #regard input, #regard [tabindex='0']")]
  .filter((node) => node.getClientRects().length && !node.disabled && node.getAttribute("tabindex") !== "-1")
  .filter((node) => !window.reached.has(node)).map((node) => node.outerHTML.slice(0, 80))"""
WITHOUT_KEYS = """() => [...document.querySelectorAll(["text", "picker", "map-grid", "heads", "key-names"]
    .map((name) => `#regard .${name}`).join(", ") + ", #regard [role=listbox]")]
  .filter((node) => node.getClientRects().length
    && ![node, ...node.querySelectorAll("*")].some((one) => window.reached.has(one)))
  .map((node) => node.outerHTML.slice(0, 80))"""


def test_the_keyboard_alone_reaches_everything_in_every_view(browser, file):
    with opened(browser, file) as page:
        page.tab.evaluate(CONTROLS)
        for view in VIEWS:
            show(page, view)
            page.tab.evaluate("() => { document.activeElement.blur(); window.reached.clear() }")
            for _ in range(60):
                page.tab.keyboard.press("Tab")
            assert page.tab.evaluate(UNREACHED) == []
            assert page.tab.evaluate(WITHOUT_KEYS) == []


def test_every_view_is_saved_as_svg_with_selectable_words_and_as_png(browser, file):
    with opened(browser, file) as page:
        for view in VIEWS:
            show(page, view)
            asked = re.sub(r"\s", "", page.tab.locator("h1").inner_text())
            heading = re.sub(
                r"\s", "", page.tab.locator(".view h2:visible, .step-titles span:visible").first.inner_text()
            )
            files = {}
            for kind in ("SVG", "PNG"):
                with page.tab.expect_download() as download:
                    page.tab.get_by_role("button", name=kind, exact=True).click()
                files[kind] = download.value.path().read_bytes()
            root = ElementTree.fromstring(files["SVG"])
            words = "".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
            words = re.sub(r"\s", "", words)
            assert asked in words
            assert heading in words
            assert view == "flow" or list(root.iter(f"{SVG}image"))  # routes are lines
            assert b"foreignObject" not in files["SVG"]
            assert files["PNG"][:4] == b"\x89PNG"
            size = struct.unpack(">II", files["PNG"][16:24])
            assert size == pytest.approx((2 * float(root.get("width")), 2 * float(root.get("height"))), abs=2)
