"""A page that runs its model, opened from a file without a network: what is typed is what Python computes."""

import re
from pathlib import Path

import pytest
import torch
from chromium import OpenPage, address_of, needs_chromium

import regard
from regard.show.page.live import EXAMPLES, live_page
from regard.traces.trace import trace_layer

pytestmark = needs_chromium
AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"
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


def click_head(page, layer, head):
    """In the heads to cut."""
    page.tab.locator(".cut-heads .picker canvas").first.click(position={"x": 14 + 24 * head + 9, "y": 24 * layer + 9})


def shown_cut(page, name):
    page.tab.locator(".ask h1 em", has_text=re.compile(re.escape(name))).wait_for()
    page.ready()


def test_a_head_that_copies_is_broken_in_three_clicks(browser, model, tmp_path):
    path = tmp_path / "live.html"
    path.write_text(live_page(model, "tiny").html(), encoding="utf-8")
    page = OpenPage(browser, path.as_uri())
    page.tab.get_by_role("button", name="skip").click()
    click_head(page, 0, 2)
    shown_cut(page, "0.2")
    assert page.text(".ask p").startswith("Head 4.3: induction 0.80 → 0.38 on average.")
    assert page.tab.locator(".next-tokens b").first.inner_text() == "⏎"
    assert page.tab.locator(".next-tokens .num").first.inner_text() == "0.99→0.03"
    page.close()


def test_several_heads_and_an_edge_are_cut_and_put_back(opened, model):
    click_head(opened, 0, 2)
    shown_cut(opened, "0.2")
    click_head(opened, 4, 3)
    shown_cut(opened, "0.2, 4.3")
    ids = model.tokenizer.encode(TEXT)
    opened.open(f"{address_of(opened.tab).split('#')[0]}#view=head&head=5.1&report=1")
    with regard.cut(model, [(0, 2), (4, 3)]):
        assert_shows(opened, weights_of(model, ids, 5, 1))
    opened.tab.get_by_role("button", name="put all back").click()
    opened.tab.get_by_role("button", name="put all back").wait_for(state="detached")
    opened.ready()
    assert_shows(opened, weights_of(model, ids, 5, 1))
    opened.tab.keyboard.press("Tab")
    opened.tab.locator(".map-grid").click(position={"x": 1, "y": 60})  # the first key of some row
    button = opened.tab.locator(".role .cut").last
    row = opened.tab.locator(".text .unit[data-state~=pinned]").first.inner_text()
    assert row in button.inner_text()
    button.click()
    opened.tab.locator(".ask h1 em", has_text=re.compile(r"→0 in 5\.1|→ .* in 5\.1")).wait_for()
    query = int(re.search(r"cut=5\.1%3A(\d+)-0", address_of(opened.tab))[1])
    opened.open(f"{address_of(opened.tab).split('#')[0]}#view=head&head=5.1&report=1")
    with regard.cut(model, [(5, 1)], edges=[(query, 0)]):
        assert_shows(opened, weights_of(model, ids, 5, 1))
    assert opened.messages == []


def test_the_address_holds_text_head_word_and_cuts_and_back_works(browser, opened, model):
    box = opened.tab.get_by_role("textbox", name="text", exact=True)
    typed(opened, "Tom gave Mary the apple", len(model.tokenizer.encode("Tom gave Mary the apple")))
    click_head(opened, 1, 5)
    shown_cut(opened, "1.5")
    opened.tab.locator(".ask").click()
    opened.tab.keyboard.press("2")
    opened.tab.keyboard.press("ArrowRight")
    opened.tab.keyboard.press("Enter")
    address = address_of(opened.tab)
    assert all(part in address for part in ("text=Tom", "cut=1.5", "looks="))
    again = OpenPage(browser, address)
    assert again.tab.get_by_role("textbox", name="text", exact=True).input_value() == "Tom gave Mary the apple"
    assert (again.text(".ask h1"), again.text(".cuts")) == (opened.text(".ask h1"), opened.text(".cuts"))
    again.close()
    while "cut=" in address_of(opened.tab):
        opened.tab.go_back()
    opened.tab.wait_for_function("() => !document.querySelector('.cuts button')")
    assert box.input_value() == "Tom gave Mary the apple"
    while "text=" in address_of(opened.tab):
        opened.tab.go_back()
    tokens_shown(opened, len(model.tokenizer.encode(TEXT)))
    assert box.input_value() == TEXT
    assert opened.messages == []


def tokens_shown(page, count):
    page.tab.get_by_text(re.compile(rf"· {count} tokens")).wait_for()
    page.ready()


def test_a_click_takes_a_token_and_it_can_be_taken_back(opened, model):
    ids = model.tokenizer.encode(TEXT)
    with torch.no_grad():
        chances = model(torch.tensor([ids]))[0, -1].softmax(-1)
    best = chances.topk(10)
    shown = [float(one) for one in opened.tab.locator(".next-tokens .num").all_inner_texts()]
    assert shown == pytest.approx(best.values.tolist(), abs=0.0051)
    opened.tab.locator(".next-tokens button").nth(1).click()
    tokens_shown(opened, len(ids) + 1)
    box = opened.tab.get_by_role("textbox", name="text", exact=True)
    assert box.input_value() == TEXT + model.tokenizer.decode([int(best.indices[1])])
    opened.tab.get_by_role("button", name="take back").click()
    tokens_shown(opened, len(ids))
    assert box.input_value() == TEXT
    assert opened.messages == []


def set_temperature(page, value):
    page.tab.get_by_role("slider", name="temperature").evaluate(
        "(el, value) => { el.value = value; el.dispatchEvent(new Event('input')); }", value
    )


def write_fast(page):
    page.tab.get_by_role("button", name="fast", exact=True).click()
    page.tab.get_by_role("button", name="write on", exact=True).click()


def test_the_model_writes_on_as_in_python_and_a_branch_begins_at_a_word(opened, model):
    ids = model.tokenizer.encode(TEXT)
    set_temperature(opened, 0)
    write_fast(opened)
    tokens_shown(opened, len(ids) + 64)
    box = opened.tab.get_by_role("textbox", name="text", exact=True)
    written = model.generate(ids, max_new_tokens=64, temperature=0)
    assert box.input_value() == model.tokenizer.decode([*ids, *written])
    opened.tab.evaluate("location.hash = 'view=head&head=4.3&looks=5'")
    opened.tab.get_by_role("button", name=re.compile("write on after")).click()
    tokens_shown(opened, 6)
    assert box.input_value() == model.tokenizer.decode(ids[:6])
    opened.tab.go_back()
    tokens_shown(opened, len(ids) + 64)
    assert opened.messages == []


def test_writing_can_be_stopped_and_shows_the_newest_row_of_every_head(opened, model):
    tokens = len(model.tokenizer.encode(TEXT))
    opened.tab.evaluate(
        """() => new MutationObserver(() => {
          const board = document.querySelector(".board canvas"), button = document.querySelector(".write");
          if (board.getAttribute("aria-label") && button.textContent === "stop") {
            const data = board.getContext("2d").getImageData(0, 0, board.width, board.height).data;
            document.body.dataset.painted = data.some((one) => one) ? "yes" : "no";
            button.click();
          }
        }).observe(document.querySelector(".board"), { subtree: true, attributes: true })"""
    )
    opened.tab.get_by_role("button", name="write on", exact=True).click()
    opened.tab.wait_for_function("() => document.body.dataset.painted")
    opened.tab.locator(".board").wait_for(state="hidden")
    opened.ready()
    count = int(re.search(r"· (\d+) tokens", opened.text(".meta"))[1])
    assert tokens < count < tokens + 64
    assert opened.tab.evaluate("document.body.dataset.painted") == "yes"
    assert opened.messages == []


def test_a_stop_that_comes_too_late_loses_nothing(opened, model):
    """The model has ended, and the page asks for what it wrote: then stop is pressed."""
    tokens = len(model.tokenizer.encode(TEXT))
    opened.tab.evaluate(
        """() => {
          const send = Worker.prototype.postMessage, button = document.querySelector(".write");
          Worker.prototype.postMessage = function (message, transfer) {
            send.call(this, message, transfer);
            if (!message.question || button.textContent !== "stop" || document.body.dataset.late) return;
            document.body.dataset.late = "yes";
            button.click();
          };
        }"""
    )
    write_fast(opened)
    tokens_shown(opened, tokens + 64)
    assert opened.tab.evaluate("document.body.dataset.late") == "yes"
    assert opened.messages == []


def test_the_steps_have_live_numbers(opened, model):
    opened.tab.evaluate("location.hash = 'view=steps&head=4.3&looks=9'")
    opened.tab.locator(".step .key-cell").first.wait_for()
    ids = model.tokenizer.encode(TEXT)
    weights = trace_layer(model, 4, ids=torch.tensor([ids]))["weights"][0, 3, 9]
    cells = opened.tab.locator(".step", has_text=re.compile("softmax")).locator(".key-cell[data-key]").all()
    shown = {int(one.get_attribute("data-key")): float(one.inner_text()) for one in cells}
    assert len(shown) >= 10
    assert shown == pytest.approx({key: float(weights[key]) for key in shown}, abs=0.0051)
    assert opened.messages == []


def test_the_guided_start_is_shown_once_and_can_be_skipped(browser, file):
    page = OpenPage(browser, file.as_uri())
    tour = page.tab.get_by_role("region", name="guided start")
    for number in range(1, 7):
        tour.get_by_text(f"{number} of 6").wait_for()
        page.ready()
        if number == 4:
            tour.get_by_role("button", name="cut it").click()
            page.tab.get_by_text("What changed when").wait_for()
            tour.get_by_text("What 4.3 did with it (○) and does without it (●)").wait_for()
        tour.locator(".turns button:visible", has_text=re.compile("next|done")).click()
    tour.wait_for(state="hidden")
    # It began with another text: that of the file is back.
    page.tab.wait_for_function("text => document.querySelector('.live textarea').value === text", arg=TEXT)
    page.open(file.as_uri())
    assert not tour.is_visible()
    page.tab.get_by_role("button", name="guided start").click()
    tour.get_by_role("button", name="skip").click()
    assert not tour.is_visible()
    page.close()


def test_without_storage_the_page_works(browser, file):
    context = browser.new_context(offline=True)
    tab = context.new_page()
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('forbidden'); } })")
    tab.goto(file.as_uri())
    tab.get_by_text("1 of 6").wait_for()
    tab.get_by_role("button", name="skip").click()
    context.close()
    assert errors == []


def test_everything_is_done_with_the_keyboard_alone(opened, model):
    opened.tab.locator(".cut-heads .picker").focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        opened.tab.keyboard.press(key)
    shown_cut(opened, "0.2")
    assert opened.tab.evaluate("document.activeElement.className") == "picker"
    opened.tab.keyboard.press("Enter")
    opened.tab.wait_for_function("() => !document.querySelector('.cuts button')")
    reached = set()
    opened.tab.get_by_role("textbox", name="text", exact=True).focus()
    for _ in range(40):
        opened.tab.keyboard.press("Tab")
        reached.add(opened.tab.evaluate("document.activeElement.closest('[class]').className"))
        label = opened.tab.evaluate("document.activeElement.textContent")
        if label == "write on":
            break
    opened.tab.keyboard.press("Enter")
    tokens_shown(opened, len(model.tokenizer.encode(TEXT)) + 64)
    assert opened.messages == []


def test_typing_leaves_the_cursor_where_it_is(opened):
    box = opened.tab.get_by_role("textbox", name="text", exact=True)
    box.evaluate("box => { box.focus(); box.setSelectionRange(5, 5); }")
    opened.tab.keyboard.type(" once", delay=40)
    tokens_shown(opened, 13)
    assert box.evaluate("box => [box.value, box.selectionStart, document.activeElement === box]") == [
        "Alice once saw the cat, and the cat saw Alice",
        10,
        True,
    ]
    assert opened.messages == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_is_too_wide(browser, file, model, scheme):
    wrong = []
    page = OpenPage(browser, file.as_uri(), color_scheme=scheme)
    page.tab.evaluate(f"{AXE.read_text()};0")

    def check(state):
        found = page.tab.evaluate("axe.run({ rules: { 'target-size': { enabled: true } } })")["violations"]
        wrong.extend(f"{state}: {one['id']}: {one['nodes'][0]['html']}" for one in found)

    for width in (390, 768, 1440, 2560):
        page.tab.set_viewport_size({"width": width, "height": 900})
        check(f"{width}")
        if page.tab.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{width}: too wide")
    click_head(page, 0, 2)
    shown_cut(page, "0.2")
    check("a cut")
    page.tab.locator(".next-tokens button").nth(1).click()
    tokens_shown(page, len(model.tokenizer.encode(next(iter(EXAMPLES.values())))) + 1)  # the text of the guided start
    check("a token")
    assert wrong == []
    page.close()


def test_without_webassembly_the_numbers_are_the_same(browser, file, model):
    page = OpenPage(browser, f"{file.as_uri()}?plain=1#view=head&head=4.3")
    assert_shows(page, weights_of(model, model.tokenizer.encode(TEXT), 4, 3))
    page.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a " * 600, "The text has [0-9]+ tokens; at most 512 are read here. Shorten it."),
        ("a" * 100_000, "The text has 100,000 characters; at most 20,000 are read. Shorten it."),
        ("", "The text is empty. Type a few words."),
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
