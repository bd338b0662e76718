"""What a reader met who looked closely: long texts, two texts, numbers that are none, paper, links, small screens."""

import csv
from io import StringIO

import pytest
import torch
from chromium import needs_chromium, opened

import regard
from regard.commands.ladder_page import START, ladder_reports
from regard.show.page.payload import Titled
from regard.show.page.write import titled_texts, write_page
from regard.support.tokens import TextTokens

pytestmark = needs_chromium

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)
STORE = (
    "When Mary and John went to the store, John gave a drink to Mary. "
    "When Tom and Ann went to the shop, Ann gave a book to Tom."
)
HOUSE = "This is the house that Jack built.\n\nThis is the malt,\nThat lay in the house that Jack built.\n\n"


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


@pytest.fixture(scope="module")
def write(model, tmp_path_factory):
    """Writes a page of one or more texts; returns the file and the reports."""
    folder = tmp_path_factory.mktemp("pages")

    def written(*texts, start=None, reader=model, cut=None):
        reports = []
        for i, text in enumerate(texts):
            ids = torch.tensor([model.tokenizer.encode(text)])
            with torch.no_grad(), regard.watch(reader, tokenizer=model.tokenizer, keep=True) as seen:
                reader(ids)
            reports.append((f"text {i}" if cut is None else "uncut", seen))
            if cut is not None:
                with (
                    regard.cut(reader, [cut]),
                    torch.no_grad(),
                    regard.watch(reader, tokenizer=model.tokenizer, keep=True) as seen,
                ):
                    reader(ids)
                reports.append((f"without {cut[0]}.{cut[1]}", seen))
        file = folder / f"{len(list(folder.iterdir()))}.html"
        write_page(file, [one for title, seen in reports for one in titled_texts(seen, title)], start)
        return file, [seen for _, seen in reports]

    return written


@pytest.fixture(scope="module")
def alice(write):
    return write(ALICE)


@pytest.fixture(scope="module")
def house(write):
    return write(HOUSE * 4)


def inside(page, selector):
    """Is the whole element in the window?"""
    box = page.tab.locator(selector).first.bounding_box()
    size = page.tab.viewport_size
    return box["x"] >= 0 and box["x"] + box["width"] <= size["width"] and 0 <= box["y"] <= size["height"]


def test_a_text_of_65_tokens_opens_in_long_on_a_head_that_copies_and_its_answer_is_on_the_screen(browser, house):
    file, (seen,) = house
    assert seen.sizes()[0][0][2] > 65
    with opened(browser, file) as page:
        assert page.tab.locator("#regard").get_attribute("data-view") == "long"
        layer, head = map(int, page.tab.locator("#regard").get_attribute("data-ready").split("."))
        means = {place: one.means["induction"] for place, one in seen.portraits().items()}
        assert means[layer, head] >= 0.15
        assert inside(page, ".ask p")
        assert inside(page, ".long-text [data-state~=chosen]")
        assert inside(page, ".zoom-map .outline")


@pytest.mark.parametrize("width", [390, 768, 1024, 1280, 1440])
def test_a_map_of_many_tokens_is_no_wider_than_the_window(browser, write, width):
    file, _ = write(HOUSE * 15)
    with opened(browser, file, "view=head&head=4.3", viewport={"width": width, "height": 900}) as page:
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
        assert page.tab.locator(".map-grid").bounding_box()["width"] > 200


def test_a_text_that_scrolls_shows_the_word_of_the_question(browser, write):
    file, _ = write(HOUSE * 4)
    with opened(browser, file, "view=head&head=4.3&looks=100", viewport={"width": 1024, "height": 900}) as page:
        text, word = (page.tab.locator(one).bounding_box() for one in (".text >> nth=0", ".text [data-state~=chosen]"))
        assert text["y"] <= word["y"] <= text["y"] + text["height"] - word["height"]


def test_a_previous_token_head_does_not_seem_to_look_at_the_last_words_most(browser, house):
    file, _ = house
    with opened(browser, file, "view=long&head=0.2&receives=40") as page:
        said = page.text(".ask p").split("in all, ")[1]
        assert 0.5 < float(said.split(" ×")[0]) < 2  # it receives about what even weights give, as every word does


def test_a_minimal_pair_has_a_difference_and_shows_both_texts(browser, write):
    file, (one, two) = write("The dog sat on the mat", "The cat sat on the mat", start={"view": "compare"})
    with opened(browser, file, "view=compare&head=4.0&looks=5") as page:
        page.tab.wait_for_selector(".compare[data-compared]")
        assert page.text(".reading .text") == "The dog sat on the mat"
        assert page.text(".second-text .text") == "The cat sat on the mat"
        assert page.tab.locator("[data-differs]").all_inner_texts() == ["dog", "cat"]
        assert page.tab.locator(".compared:visible").count() == 3
        rows = page.tab.locator(".key-row[data-key]")
        shown = {
            int(rows.nth(i).get_attribute("data-key")): rows.nth(i).locator(".num").text_content()
            for i in range(rows.count())
        }
        before, after = (seen[4, 0].weights(5)[0, 0] for seen in (one, two))
        assert len(shown) >= 2
        assert shown == {key: f"{before[key]:.2f} → {after[key]:.2f}" for key in shown}
        assert page.tab.locator(".key-row .word", has_text="dog / cat").count() == 1


def test_texts_of_two_lengths_are_aligned_and_the_page_says_how(browser, write):
    file, (one, two) = write("The dog sat on the mat", "The old dog sat on the red mat", start={"view": "compare"})
    with opened(browser, file, "view=compare&head=4.0&looks=2") as page:  # sat, which is the fourth word of the second
        page.tab.wait_for_selector(".compare[data-compared]")
        assert "The words that both have, in order, are compared" in page.text(".compare .note")
        row = page.tab.locator(".key-row[data-key='1'] .num").text_content()
        weights = float(one[4, 0].weights(2, 1)), float(two[4, 0].weights(3, 2))
        assert row == "{:.2f} → {:.2f}".format(*weights)


def test_a_head_counts_as_changed_where_one_weight_of_a_word_did(browser, write):
    file, (before, after) = write(STORE, start={"view": "compare", "layer": 5, "head": 4}, cut=(4, 3))
    assert len(before.compare(after).changed()) == 0
    moved = [(after[place].weights()[0] - before[place].weights()[0]).abs().max() >= 0.1 for place in before.order()]
    with opened(browser, file) as page:
        page.tab.wait_for_selector(".change[role=option]")
        answer = page.text(".ask p")
        assert f"None of 48 heads changed on average; {sum(moved)} for some word." in answer
        assert page.tab.locator(".change[role=option]").count() == sum(moved)
        values = page.text(".change[role=option] .values").split(" → ")
        assert abs(float(values[1]) - float(values[0])) >= 0.1


def test_a_pin_survives_the_other_run(browser, write):
    file, _ = write(STORE, cut=(4, 3))
    with opened(browser, file, "view=head&head=5.4&looks=20") as page:
        question = page.text("h1")
        page.tab.get_by_role("button", name="other run").click()
        page.tab.wait_for_function("() => document.querySelector('.meta').textContent.startsWith('without')")
        assert page.text("h1") == question


def test_not_a_number_is_not_called_the_mask_and_where_it_starts_is_said(browser, write, model):
    broken = regard.GPT.from_pretrained("tiny")
    broken.position_embedding.weight.data[5] = torch.nan
    file, _ = write(ALICE, reader=broken)
    with opened(browser, file) as page:
        starts = "NaN starts in layer 0 at position 5 (get), in every head."
        assert page.text(".ask p") == f"Its weights are not numbers: they are NaN. {starts}"
        assert "Red: not a number." in page.text(".scale")
        page.tab.keyboard.press("1")
        assert starts in page.text(".ask p")


def test_all_who_look_at_a_word_are_drawn_with_their_weights(browser, alice):
    file, (seen,) = alice
    with opened(browser, file, "view=head&head=4.3&receives=0") as page:
        given = seen[4, 3].weights()[0][:, 0]
        assert page.tab.locator(".lines .numbers text").count() == int((given >= 0.01).sum()) > 12
        assert page.tab.locator(".lines .note").text_content() == ""


def test_a_list_of_lines_that_was_cut_says_so(browser, alice):
    file, (seen,) = alice
    even = int((seen[0, 0].weights(36)[0, 0] >= 0.01).sum())
    with opened(browser, file, "view=head&head=0.0&looks=36") as page:
        assert page.tab.locator(".lines .note").text_content() == f"the 12 largest of {even}"


POINT = """([row, col]) => {
  const grid = document.querySelector(".map .map-grid"), box = grid.getBoundingClientRect();
  const size = box.width / Number(grid.getAttribute("aria-colcount"));
  const at = { clientX: box.left + (col + 0.5) * size, clientY: box.top + (row + 0.5) * size, bubbles: true };
  grid.dispatchEvent(new PointerEvent("pointermove", at));
}"""


def test_the_value_under_the_pointer_is_written_with_the_digits_that_are_known(browser, alice):
    file, (seen,) = alice
    with opened(browser, file, "view=head&head=4.3") as page:
        for row, col in ((25, 11), (25, 7), (30, 0)):
            page.tab.evaluate(POINT, [row, col])
            written = page.tab.locator(".readout .pointed").text_content()
            assert float(written.split(" ")[-1]) == pytest.approx(
                float(seen[4, 3].weights(row, col)), abs=1.3e-5
            )  # 8e-6 as stored, and 5e-6 as written
            assert len(written.split(".")[-1]) == 5


@pytest.mark.parametrize("text", ["hi", "The cat sat on the mat", ALICE])
def test_what_is_written_at_a_row_stays_on_the_page_and_off_the_legend(browser, write, text):
    file, (seen,) = write(text)
    T = seen.sizes()[0][0][2]
    for width in (1024, 1100, 1440):
        with opened(browser, file, "view=head&head=4.0", viewport={"width": width, "height": 900}) as page:
            for row in {0, 1, T // 2, T - 1}:
                page.tab.evaluate(POINT, [min(row, T - 1), 0])
                readout, legend = (page.tab.locator(one).first.bounding_box() for one in (".readout", ".scale"))
                assert readout["x"] + readout["width"] <= width
                apart = readout["x"] + readout["width"] <= legend["x"] or (
                    readout["y"] >= legend["y"] + legend["height"] or readout["y"] + readout["height"] <= legend["y"]
                )
                assert apart or readout["x"] >= legend["x"] + legend["width"]


def test_a_preview_names_the_head_under_the_pointer(browser, alice):
    with opened(browser, alice[0], "view=head&head=0.0") as page:
        box = page.tab.locator(".picker").bounding_box()
        page.tab.mouse.move(box["x"] + 14 + 3 * 24 + 10, box["y"] + 4 * 24 + 10)
        assert page.text(".preview") == "4.3 induction"
        page.tab.mouse.move(5, 5)
        assert page.tab.locator(".preview").is_hidden()


@pytest.mark.parametrize("width", [390, 768, 1024, 1440])
def test_a_row_of_heads_is_a_layer_at_every_width(browser, alice, width):
    with opened(browser, alice[0], "view=heads", viewport={"width": width, "height": 900}) as page:
        tops = page.tab.locator(".heads .one").evaluate_all("nodes => nodes.map(one => one.style.top)")
        assert [len(set(tops[layer * 8 : layer * 8 + 8])) for layer in range(6)] == [1] * 6
        assert page.tab.locator(".row-number").all_inner_texts() == list("012345")
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_back_undoes_a_head_and_a_view_and_a_pin_adds_no_step(browser, alice):
    with opened(browser, alice[0], "view=head&head=4.3") as page:
        page.tab.keyboard.press("]")
        page.ready("4.4")
        page.tab.locator(".text .unit").nth(9).click()
        page.tab.get_by_role("button", name="Heads").click()
        page.tab.go_back()
        page.tab.wait_for_selector('#regard[data-view="head"]')
        assert page.text(".role-name").startswith("4.4")
        page.tab.go_back()
        page.ready("4.3")


def test_a_link_and_a_row_can_be_taken_along(browser, alice):
    file, (seen,) = alice
    with opened(browser, file, "view=head&head=4.3&looks=25") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.tab.get_by_role("button", name="copy link").click()
        page.tab.wait_for_selector(".told:not(:empty)")
        assert f"Copied: {file.name}#view=head&head=4.3&looks=25" in page.text(".told")
        assert str(file.parent) not in page.text(".told")
        with page.tab.expect_download() as download:
            page.tab.get_by_role("button", name="CSV", exact=True).click()
        rows = list(csv.DictReader(StringIO(download.value.path().read_text("utf-8"))))
        assert [int(row["position"]) for row in rows] == list(range(26))
        found = torch.tensor([float(row["weight"]) for row in rows])
        torch.testing.assert_close(found, seen[4, 3].weights(25)[0, 0][:26], atol=1e-5, rtol=0)
        with page.tab.expect_download() as download:
            page.tab.get_by_role("button", name="figure", exact=True).click()
        figure = download.value.path().read_text("utf-8")
        assert "is looked at" in figure
        assert "This head among all" not in figure


@pytest.mark.parametrize("view", ["head", "heads", "long", "compare"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_prints_on_one_sheet_in_light_colours(browser, house, view, theme):
    with opened(browser, house[0], f"view={view}&head=4.3", color_scheme=theme) as page:
        if view == "compare":
            page.tab.wait_for_selector(".compare[data-compared]")
        paper = page.tab.pdf(prefer_css_page_size=True)
        assert paper.count(b"/Type /Page\n") == 1
        page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.tab.locator("#regard").get_attribute("data-theme") == "light"
        page.tab.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.tab.locator("#regard").get_attribute("data-theme") == theme


LUMINANCE = """node => {
  const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(node);
  const [a, b] = [light(style.fill), light(getComputedStyle(document.querySelector(".regard")).backgroundColor)];
  return style.opacity * (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hidden_words_beside_the_lines_can_be_read(browser, alice, theme):
    with opened(browser, alice[0], "view=head&head=4.3&looks=5", color_scheme=theme) as page:
        assert page.tab.locator(".lines text[data-state=hidden]").first.evaluate(LUMINANCE) >= 4.5


def test_forced_colours_mark_the_current_tab_and_keep_the_scale(browser, alice):
    with opened(browser, alice[0], "view=head", forced_colors="active") as page:
        colors = page.tab.locator("header nav button").evaluate_all(
            "all => all.map(one => [one.ariaCurrent, getComputedStyle(one).borderBottomColor])"
        )
        current = [color for is_current, color in colors if is_current]
        assert len(current) == 1
        assert current[0] not in [color for is_current, color in colors if not is_current]
        assert "gradient" in page.tab.locator(".scale .bar").evaluate("one => getComputedStyle(one).backgroundImage")


def test_the_ladder_has_a_tab_for_each_rung_opens_in_steps_and_marks_what_is_new(browser, tmp_path):
    write_page(tmp_path / "ladder.html", ladder_reports(), START)
    with opened(browser, tmp_path / "ladder.html") as page:
        page.tab.wait_for_selector(".step-rows li")
        tabs = page.tab.locator(".runs button")
        assert tabs.all_inner_texts() == ["1 simplified", "2 self-attention", "3 causal", "4 multi-head"]
        assert "q k v" not in page.text(".how")
        tabs.nth(1).click()
        page.tab.wait_for_selector(".step-name .new")
        marked = page.tab.locator("li:has(.new)").evaluate_all("all => all.map(one => one.dataset.step)")
        assert marked == ["queries", "keys", "values", "scaled"]
        assert "q k v" in page.text(".how")
        page.tab.keyboard.press("2")
        assert page.tab.locator(".strips").is_hidden()  # one head is among none


def test_one_token_is_one_token_and_marks_of_the_tokenizer_stand_apart(browser, write, model, tmp_path):
    _, (seen,) = write("The cat sat on the mat")
    size = seen.sizes()[0][0][2]
    pieces = ["[CLS]", *[" a"] * (size - 3), " .", "[SEP]"]
    write_page(tmp_path / "bert.html", [Titled("bert", seen, tokens=TextTokens(pieces))])
    with opened(browser, tmp_path / "bert.html") as page:
        assert page.text(".text").endswith("a . [SEP]")
    with torch.no_grad(), regard.watch(model, keep=True) as one:
        model(torch.tensor([[3]]))
    write_page(tmp_path / "one.html", titled_texts(one, "tiny"))
    with opened(browser, tmp_path / "one.html") as page:
        assert page.text(".meta").endswith("1 token")


def test_a_phone_shows_the_word_and_its_keys_before_the_lines(browser, alice):
    file, _ = alice
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with opened(browser, file, "view=head&head=4.3", **options) as page:
        assert inside(page, ".keys-of tr:nth-child(2)")
        assert page.text(".keys-of tr:nth-child(2)").startswith("tired@7 0.94")
        assert page.tab.locator(".foot").inner_text().startswith("Tap a word")
