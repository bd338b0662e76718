"""What a designer noticed who looked at pictures of every view: one header row, whole words, even shades, prints."""

import re
from itertools import pairwise

import pytest
import torch
from chromium import needs_chromium, opened

import regard
from heads.models import bert, t5
from regard.commands.shared.texts import model_titles
from regard.show.page.payload import Titled
from regard.show.page.write import titled_texts, write_page
from regard.support.tokens import TextTokens
from regard.traces.trace import trace_layers

pytestmark = needs_chromium

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)
HOUSE = "This is the house that Jack built.\n\nThis is the malt,\nThat lay in the house that Jack built.\n\n"


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


def read(model, text, tokenizer):
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.no_grad(), regard.watch(model, tokenizer=tokenizer, keep=True) as seen:
        model(ids)
    return ids, seen


@pytest.fixture(scope="module")
def alice(model, tmp_path_factory):
    """The text with the steps of layer 4, beside the run without head 0.2."""
    ids, seen = read(model, ALICE, model.tokenizer)
    with regard.cut(model, [(0, 2)]):
        _, without = read(model, ALICE, model.tokenizer)
    path = tmp_path_factory.mktemp("alice") / "page.html"
    steps = trace_layers(model, {"ids": ids}, [4])
    write_page(path, titled_texts(seen, "uncut", steps) + titled_texts(without, "without 0.2"))
    return path, seen


@pytest.fixture(scope="module")
def house(model, tmp_path_factory):
    _, seen = read(model, HOUSE * 4, model.tokenizer)
    path = tmp_path_factory.mktemp("house") / "page.html"
    write_page(path, titled_texts(seen, "runs/of/a/model"))
    return path, seen


@pytest.fixture(scope="module")
def of_bert(tmp_path_factory):
    """A model whose words look both ways, and whose code names no steps."""
    model = bert()
    with torch.no_grad(), regard.watch(model, keep=True) as seen:
        model(torch.arange(3, 10)[None])
    path = tmp_path_factory.mktemp("bert") / "page.html"
    words = TextTokens([f" w{i}" for i in range(7)])
    write_page(path, [Titled("bert", seen, tokens=words)])
    return path


@pytest.mark.parametrize("width", [1024, 1280, 1440])
def test_tabs_and_tools_stand_in_one_row_with_seven_tabs_and_two_runs(browser, alice, house, width):
    for file in (alice[0], house[0]):
        with opened(browser, file, viewport={"width": width, "height": 900}) as page:
            middles = page.tab.locator("header > b, header nav button:visible, .tools button:visible").evaluate_all(
                "all => all.map(one => { const box = one.getBoundingClientRect(); return (box.top + box.bottom) / 2; })"
            )
            assert len(middles) > 12
            assert max(middles) - min(middles) < 12


def test_all_tabs_fit_on_a_phone(browser, house):
    with opened(browser, house[0], viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True) as page:
        assert page.tab.locator("header nav").evaluate("one => one.scrollWidth <= one.clientWidth")
        text = page.tab.locator(".find").evaluate(
            "one => { const to = document.createElement('canvas').getContext('2d');"
            " to.font = getComputedStyle(one).font; return [to.measureText(one.placeholder).width, one.clientWidth]; }"
        )
        assert text[0] <= text[1]
        looked, drawn = (page.tab.locator(one).bounding_box() for one in (".looked", ".zoom-map"))
        assert looked["y"] < drawn["y"]  # the words first


def test_what_words_receive_is_shaded_alike_from_first_to_last_where_each_receives_the_same(browser, house):
    file, (seen) = house
    received = seen[0, 2].received[0]  # of a head that looks at the token before
    assert float(received[8:-1].min()) > 0.5
    assert float(received.max()) < 3
    with opened(browser, file, "view=long&head=0.2") as page:
        most = re.search(r"at most ([\d.]+) \(log", page.text(".zoom-map .below"))
        assert float(most[1]) == pytest.approx(float(received.max()), abs=0.06)
        shades = page.tab.locator(".long-text .unit").evaluate_all("all => all.map(one => !!one.style.background)")
        quarter = len(shades) // 4
        assert sum(shades[-quarter:]) <= sum(shades[:quarter]) + 3


def test_the_largest_weights_of_a_word_include_small_ones_and_an_empty_line_is_one_stroke(browser, house):
    file, seen = house
    with opened(browser, file, "view=long&head=4.3") as page:
        query = int(re.search(r"@(\d+)", page.text("h1"))[1])
        weights = seen[4, 3].weights(query)[0, 0]
        rows = page.tab.locator(".looked tr[data-unit]")
        assert rows.count() == min(8, int((weights >= 5e-4).sum()))
        for row in rows.all():
            weight = float(weights[int(row.get_attribute("data-unit"))])
            text = row.locator("td").first.text_content()
            assert text == (f"{weight:.2f}" if weight >= 0.005 else f"{weight:.3f}")
            context = row.locator(".context").text_content()
            assert "/ /" not in context.replace("  ", " ")
            assert not context.strip().startswith("/")


def test_a_map_of_many_tokens_labels_whole_words(browser, house):
    with opened(browser, house[0], "view=head&head=4.3", viewport={"width": 1024, "height": 700}) as page:
        labels = page.tab.locator(".map .labels text.col").all_text_contents()
        assert len(labels) > 10
        assert sum(len(one) >= 4 for one in labels) > 0.8 * len(labels)


def test_a_pinned_word_is_written_whole_in_the_captions_of_heads(browser, alice):
    with opened(browser, alice[0], "view=heads&head=4.3&looks=25") as page:
        cut = page.tab.locator(".heads .to .word").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
        )
        assert cut == []
        assert page.tab.locator(".heads .to .word").all_text_contents().count("tired@7") >= 2


def test_rows_of_a_layer_name_repeated_words_with_their_position(browser, alice):
    with opened(browser, alice[0], "view=layer&head=4.3&looks=25") as page:
        page.tab.wait_for_selector(".strips text.note")
        notes = page.tab.locator(".strips").first.locator("text.note").all_text_contents()
        assert notes[3] == "tired@7 0.94"


def test_no_word_over_the_scores_is_cut_while_there_is_room_beside_it(browser, alice):
    with opened(browser, alice[0], "view=steps&head=4.3&looks=25") as page:
        page.tab.wait_for_selector(".key-name")
        names = page.tab.locator(".key-name").evaluate_all(
            "all => all.map(one => [one.textContent, one.scrollWidth <= one.clientWidth])"
        )
        assert dict(names)["beginning"]
        boxes = page.tab.locator(".key-name").evaluate_all(
            "all => all.map(one => { const range = document.createRange(); range.selectNodeContents(one);"
            " const box = range.getBoundingClientRect(); return [box.left, box.right]; })"
        )
        assert all(one[1] <= two[0] + 1 for one, two in pairwise(boxes))
        cut = page.tab.locator(".said .sum").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth + 1)"
        )
        assert cut == []


def test_what_is_said_of_missing_steps_is_true_of_a_model_that_names_none(browser, of_bert):
    with opened(browser, of_bert, "view=steps") as page:
        assert "Only layers of regard name their steps" in page.text(".view .error")
        assert "--steps" not in page.text(".view")
        assert page.tab.get_by_text("How to read").is_hidden()


def test_a_head_that_did_not_change_is_not_said_to_have(browser, model, tmp_path):
    reports = [
        (text, read(model, text, model.tokenizer)[1]) for text in ("The dog sat on the mat", "The cat sat on the mat")
    ]
    write_page(tmp_path / "pair.html", [one for title, seen in reports for one in titled_texts(seen, title)])
    with opened(browser, tmp_path / "pair.html", "view=compare&head=0.2") as page:
        page.tab.get_by_text("no mean and no weight").wait_for()  # words are compared one head after the other
        assert page.text(".ask p").startswith("Head 0.2: no mean and no weight of a word changed by 0.1.")


def test_the_directory_of_a_model_is_not_in_its_page(browser, model, tmp_path):
    _, seen = read(model, "The cat sat", model.tokenizer)
    folder = tmp_path / "runs" / "model"
    write_page(tmp_path / "page.html", titled_texts(seen, model_titles([str(folder)])[0]))
    with opened(browser, tmp_path / "page.html") as page:
        assert page.text(".meta").startswith("model ·")
        assert str(tmp_path) not in page.tab.content()


def test_marks_and_outlines_have_the_shape_of_their_maps(browser, of_bert, alice):
    with opened(browser, of_bert, "view=heads") as page:
        frames = page.tab.locator(".roles .glyph .frame").evaluate_all("all => all.map(one => one.getAttribute('d'))")
        assert set(frames) == {"M.5 .5h11v11h-11z"}
        head, caption = (page.tab.locator(one).bounding_box() for one in (".one >> nth=0", ".one .caption >> nth=0"))
        assert head["height"] - head["width"] <= 20  # the line below the map, and no more
        assert caption["y"] + caption["height"] <= head["y"] + head["height"] + 2
    with opened(browser, alice[0], "view=heads") as page:
        frames = page.tab.locator(".roles .glyph .frame").evaluate_all("all => all.map(one => one.getAttribute('d'))")
        assert set(frames) == {"M.5 .5v11h11z"}


def test_the_name_of_a_module_breaks_between_its_words(browser, tmp_path):
    model = t5()
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=torch.arange(3, 10)[None], decoder_input_ids=torch.arange(20, 25)[None])
    seen.to_html(tmp_path / "page.html", title="t5")
    with opened(browser, tmp_path / "page.html", "view=head&head=3.0") as page:
        name = page.tab.locator(".module").text_content()
        assert name.replace("\u200b", "").endswith("EncDecAttention")
        assert name.endswith("\u200bEnc\u200bDec\u200bAttention")


def test_a_saved_picture_of_a_long_text_has_no_words_of_its_buttons(browser, house):
    with opened(browser, house[0], "view=long") as page:
        assert page.text(".cells") == "a cell for each weight"
        with page.tab.expect_download() as download:
            page.tab.get_by_role("button", name="SVG", exact=True).click()
        assert "a cell for each" not in download.value.path().read_text("utf-8")


@pytest.mark.parametrize("view", ["layer", "flow", "steps", "compare"])
def test_every_view_prints_on_one_sheet_and_large_enough_to_read(browser, alice, view):
    with opened(browser, alice[0], f"view={view}&head=4.3") as page:
        page.tab.wait_for_timeout(300)
        assert page.tab.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") == 1
        page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert float(page.tab.locator("#regard").evaluate("one => one.style.zoom")) > 0.35
        page.tab.evaluate("dispatchEvent(new Event('afterprint'))")


def test_a_flow_begins_with_a_word_that_can_be_read(browser, alice):
    with opened(browser, alice[0], "view=flow&head=4.3") as page:
        page.tab.wait_for_selector(".route-list li")
        start = page.tab.locator(".ask h1 em").first.text_content()
        assert len(start) >= 3
        assert start not in ("Al", "ice")


def test_small_pictures_of_a_short_text_have_sharp_cells(browser, model, tmp_path):
    _, seen = read(model, "hi", model.tokenizer)
    write_page(tmp_path / "page.html", titled_texts(seen, "tiny"))
    with opened(browser, tmp_path / "page.html", "view=head") as page:
        colours = page.tab.evaluate(
            "() => { const one = document.querySelector('.picker canvas'), all = new Set();"
            " const { data } = one.getContext('2d').getImageData(14, 0, one.width - 14, one.height);"
            " for (let i = 0; i < data.length; i += 4) all.add(data.slice(i, i + 4).join()); return all.size; }"
        )
        assert colours <= 3 * 48 + 1  # three cells of each head, and the paper
