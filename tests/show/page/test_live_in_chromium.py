"""A page that runs its model, opened from a file without a network: what is typed is what Python computes."""

import re

import pytest
import torch
from chromium import OpenPage, chromium, needs_chromium

import regard
from regard.commands.live_page import live_page

pytestmark = needs_chromium
TEXT = "Alice saw the cat, and the cat saw Alice"
READ_CELLS = """cells => {
  const grid = document.querySelector(".map-grid"), cell = document.querySelector(".map-cell");
  const size = parseFloat(grid.style.width) / Number(grid.getAttribute("aria-colcount"));
  const box = grid.getBoundingClientRect();
  return cells.map(([row, col]) => {
    const at = { clientX: box.left + (col + 0.5) * size, clientY: box.top + (row + 0.5) * size, bubbles: true };
    grid.dispatchEvent(new PointerEvent("pointermove", at));
    return Number(cell.getAttribute("data-weight"));
  });
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "live.html"
    path.write_text(live_page(model, "tiny", TEXT).html(), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    page = OpenPage(browser, f"{file.as_uri()}#view=head&head=4.3")
    yield page
    page.context.close()


def typed(page, text, tokens):
    page.tab.get_by_role("textbox", name="text", exact=True).fill(text)
    page.tab.get_by_text(re.compile(rf"· {tokens} tokens")).wait_for()
    page.ready()


def weights_of(model, ids, layer, head, **cut):
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([ids]))
    return seen[layer, head].weights()[0]


def assert_shows(page, expected):
    T = len(expected)
    cells = [(row, col) for row in range(T) for col in range(row + 1)]
    shown = torch.tensor(page.tab.evaluate(READ_CELLS, cells))
    torch.testing.assert_close(shown, torch.stack([expected[at] for at in cells]), atol=1e-5, rtol=0)


def test_every_weight_of_a_typed_text_is_that_of_python(opened, model):
    assert_shows(opened, weights_of(model, model.tokenizer.encode(TEXT), 4, 3))
    ids = model.tokenizer.encode("The cat sat on the mat, and the cat")
    typed(opened, "The cat sat on the mat, and the cat", len(ids))
    assert_shows(opened, weights_of(model, ids, 4, 3))
    assert opened.messages == []


def test_a_cut_head_is_shown_before_and_after(opened):
    opened.tab.get_by_text("cut 4.3", exact=True).first.click()
    opened.tab.get_by_text("without 4.3").first.wait_for(state="attached")
    opened.ready()
    assert opened.messages == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a " * 600, "The text has [0-9]+ tokens; at most 512 are read here. Shorten it."),
        ("a" * 50_000, "The text has 50,000 characters; at most 20,000 are read. Shorten it."),
    ],
)
def test_a_text_that_is_too_long_is_refused_in_words_and_the_page_stays(text, sentence, opened, model):
    opened.tab.get_by_role("textbox", name="text", exact=True).fill(text)
    opened.tab.locator("[role=alert]", has_text=re.compile(sentence)).wait_for()
    typed(opened, "Alice saw the cat", len(model.tokenizer.encode("Alice saw the cat")))
    assert opened.messages == []


@pytest.mark.parametrize("text", ["\x00\x07\x1b[2J<script>", "\u202eabc\u2066", "猫\ud83d", "   ", "👩‍👩‍👧"])
def test_odd_characters_are_tokens_like_others(text, opened):
    box = opened.tab.get_by_role("textbox", name="text", exact=True)
    box.evaluate("(box, text) => { box.value = text; box.dispatchEvent(new Event('input')); }", text)
    opened.ready()
    assert opened.tab.locator("[role=alert]").text_content() == ""
    assert opened.messages == []


def test_a_damaged_file_says_so(browser, file, tmp_path):
    content = file.read_text(encoding="utf-8")
    at = content.index('id="block-model">') + 40_000
    damaged = tmp_path / "damaged.html"
    damaged.write_text(content[:at] + content[at + 40_000 :], encoding="utf-8")
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.goto(damaged.as_uri())
    tab.locator("[role=alert]", has_text=re.compile(r"\w")).wait_for()
    context.close()
