"""The page as people use it: opened from a file without a network, in Chromium."""

import random

import pytest
import torch
from chromium import address_of, needs_chromium, opened

import regard
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

pytestmark = needs_chromium

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)
READ_CELLS = """cells => {
  const grid = document.querySelector(".map-grid"), cell = document.querySelector(".map-cell");
  const size = parseFloat(grid.style.width) / Number(grid.getAttribute("aria-colcount"));
  const box = grid.getBoundingClientRect();
  return cells.map(([row, col]) => {
    const at = { clientX: box.left + (col + 0.5) * size, clientY: box.top + (row + 0.5) * size, bubbles: true };
    grid.dispatchEvent(new PointerEvent("pointermove", at));
    return cell.getAttribute("data-weight");
  });
}"""


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


@pytest.fixture(scope="module")
def write(model, tmp_path_factory):
    """Writes the page of a text; returns the file, the report and its tokens."""
    folder = tmp_path_factory.mktemp("pages")

    def written(text):
        ids = model.tokenizer.encode(text)
        with torch.no_grad(), regard.watch(model) as seen:
            model(torch.tensor([ids]))
        tokens = TextTokens(model.tokenizer.pieces(ids))
        file = folder / f"{len(list(folder.iterdir()))}.html"
        file.write_text(page_html(page_data([Titled("tiny", seen, tokens=tokens)])), encoding="utf-8")
        return file, seen, tokens

    return written


@pytest.fixture(scope="module")
def alice(write):
    return write(ALICE)


def test_the_first_screen_answers_a_question(browser, alice):
    with opened(browser, alice[0]) as page:
        assert page.text("h1") == "Where does very@25 look?"
        assert page.text(".ask p") == "At tired@7 0.94, what came after “very” the first time."
        assert page.text(".role-name") == "4.3 induction"


def test_a_thousand_cells_read_back_are_the_weights_of_the_report(browser, alice):
    file, seen, tokens = alice
    numbers = random.Random(11)
    T = len(tokens)
    for layer, head in ((4, 3), (0, 2), (5, 6), (2, 1)):
        cells = [(numbers.randrange(T), numbers.randrange(T)) for _ in range(250)]
        with opened(browser, file, f"head={layer}.{head}") as page:
            read = [float(value) for value in page.tab.evaluate(READ_CELLS, cells)]
        exact = seen[layer, head].weights()[0]
        wanted = torch.tensor([exact[row, col] if col <= row else torch.nan for row, col in cells])
        torch.testing.assert_close(torch.tensor(read), wanted, atol=1e-5, rtol=0, equal_nan=True)


def test_a_pin_survives_another_head_and_a_reload(browser, alice):
    with opened(browser, alice[0]) as page:
        page.tab.locator(".text .unit", has_text="very").nth(1).click()
        assert page.text("h1") == "Where does very@25 look?"
        page.tab.mouse.move(5, 5)
        page.tab.keyboard.press("]")
        page.ready("4.4")
        assert page.text("h1") == "Where does very@25 look?"
        page.tab.reload()
        page.ready("4.4")
        assert page.text("h1") == "Where does very@25 look?"
        page.tab.keyboard.press("Escape")
        assert "looks" not in address_of(page.tab)


def test_the_keyboard_alone_finds_where_a_word_looks_in_12_keys(browser, write):
    file, seen, tokens = write("The cat sat on the mat")
    with opened(browser, file, "head=0.0") as page:
        keys = ["/", *"4.3", "Enter", "/", *"sat", "Enter"]
        assert len(keys) <= 12
        for key in keys:
            page.tab.keyboard.press(key)
        page.ready("4.3")
        weight, key = seen[4, 3].weights(rows=tokens.find("sat"))[0, 0].max(-1)
        assert page.text("h1") == "Where does sat look?"
        assert page.text(".ask p").startswith(f"At {tokens.labels[int(key)]} {float(weight):.2f}")
        assert page.text(".live") == f"sat → {tokens.labels[int(key)]}, {float(weight):.2f}"


def test_arrows_move_from_word_to_word_and_in_the_map(browser, write):
    file, seen, tokens = write("The cat sat on the mat")
    with opened(browser, file, "head=4.3&looks=2") as page:
        page.tab.keyboard.press("ArrowRight")
        assert page.text("h1") == "Where does on look?"
        page.tab.keyboard.press("Escape")
        page.tab.locator(".map-cell").focus()
        for key in ("Home", "PageDown", "ArrowUp", "ArrowRight"):
            page.tab.keyboard.press(key)
        row = len(tokens) - 2
        label = page.tab.locator(".map-cell").get_attribute("aria-label")
        assert label == f"{tokens.labels[row]} → {tokens.labels[1]}, {float(seen[4, 3].weights(row, 1)):.2f}"


def test_what_cannot_be_found_is_said(browser, alice):
    with opened(browser, alice[0]) as page:
        for text, answer in (("9.9", "There is no head 9.9."), ("dog", "There is no word dog.")):
            page.tab.locator(".find").fill(text)
            page.tab.keyboard.press("Enter")
            assert page.text(".live") == page.text(".told") == answer  # also for those who see
        page.tab.locator(".find").fill("sister")
        page.tab.keyboard.press("Enter")
        assert page.tab.locator(".told").is_hidden()
        before = page.text(".role-name")
        page.tab.keyboard.press("]")  # the field has let go of the keys
        page.ready("4.4")
        assert page.text(".role-name") != before


def test_words_are_keys_added_up_and_queries_averaged(browser, alice):
    file, seen, tokens = alice
    words = torch.tensor(tokens.words)
    exact = seen[4, 3].weights()[0].double()
    N = int(words.max()) + 1
    member = torch.nn.functional.one_hot(words, N).double()
    wanted = (member.T @ exact @ member) / member.sum(0)[:, None]
    cells = [(row, col) for row in range(N) for col in range(row + 1)]
    with opened(browser, file, "head=4.3&words=true") as page:
        read = torch.tensor([float(value) for value in page.tab.evaluate(READ_CELLS, cells)])
        assert page.text(".text .unit") == "Alice"
    torch.testing.assert_close(read.double(), torch.stack([wanted[cell] for cell in cells]), atol=2e-5, rtol=0)


def test_roles_dim_and_statistics_sort(browser, alice):
    with opened(browser, alice[0], "view=heads") as page:
        assert page.text("h1") == "What does each of 48 heads do?"
        page.tab.locator(".roles button", has_text="induction").click()
        assert page.tab.locator(".heads .one:not([data-dim])").count() == 1
        assert page.text("h1") == "Which heads have the role induction?"
        assert page.text(".ask p") == "1 of 48: 4.3"
        page.tab.locator(".strip", has_text="entropy").click()
        first = page.text(".heads .one .id")
        entropies = {place: alice[1][place].summary["entropy"] for place in alice[1].order()}
        assert first == "{}.{}".format(*max(entropies, key=entropies.get))


def test_a_word_is_followed_into_every_head(browser, alice):
    file, seen, tokens = alice
    with opened(browser, file, "view=heads&looks=25") as page:
        captions = page.tab.locator(".heads .one").evaluate_all(
            "nodes => nodes.map(one => [one.querySelector('.id').textContent, one.querySelector('.to').textContent])"
        )
    for place, caption in captions:
        layer, head = map(int, place.split("."))
        weight, key = seen[layer, head].weights(rows=25)[0, 0].max(-1)
        assert caption == f"{tokens.labels[int(key)].removeprefix('##')} {float(weight):.2f}"


BOXES = """() => [...document.querySelectorAll('#regard :not(dialog *)')].map(one => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return [one.tagName, x, y, width, height].join(' ');
})"""


@pytest.mark.parametrize("view", ["head", "heads", "compare"])
def test_the_layout_follows_the_element_and_not_the_window(browser, alice, view):
    page, *_ = alice
    with opened(browser, page, f"view={view}", viewport={"width": 360, "height": 900}) as narrow:
        expected = narrow.tab.evaluate(BOXES)
    assert "NAV 16 " in "\n".join(expected)  # below the name, not beside it
    with opened(browser, page, f"view={view}") as wide:
        wide.tab.locator("#regard").evaluate("one => { one.style.width = '360px'; }")  # as wide as a cell of a notebook
        wide.tab.wait_for_timeout(300)
        assert wide.tab.evaluate(BOXES) == expected
