"""Tokens that are made to break a page: they run nothing, break nothing and reorder nothing, in every view."""

from xml.etree import ElementTree

import pytest
import torch
from chromium import needs_chromium, opened

import regard
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens
from regard.traces.trace import trace_layer

pytestmark = [pytest.mark.slow, needs_chromium]

LONG = "x" * 2**20
HOSTILE = [
    "</script><script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "{{constructor.constructor('document.title=1')()}}",
    '"]}',
    "\x00\x1b[31m",
    "\u202egnp",
    "\u2066a\u2067b",
    "\u200f\u061c",
    "👩‍👩‍👧‍👦",
    "",
    "\ud83d",
    "\udc8c",
    LONG,
    "\n\n",
    "مرحبا",
    "猫",
    "__proto__",
    "constructor",
    "\u2028\u2029",
    "\ufeff",
    " " * 1000 + "y",
]
REORDERING = "\u061c\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067"
UNSEEN = "\ufffd\x00\x1b\u2028\u2029\ufeff"
VIEWS = ("heads", "head", "steps", "long", "compare")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page with hostile tokens, long enough for every view; by this seed, Steps has the longest of sums."""
    torch.manual_seed(14)
    T = 103
    pieces = (HOSTILE + [piece if piece != LONG else "y" for piece in HOSTILE] * 5)[:T]
    config = regard.GPTConfig(vocab_size=11, context_length=T, d_model=14, num_layers=2, num_heads=2, d_ff=17)
    model, ids = regard.GPT(config).eval(), torch.randint(11, (1, T))
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    tokens = TextTokens(pieces, continues=[i % 5 == 4 for i in range(T)])
    titled = Titled("<b>\udc8c", seen, tokens=tokens, steps={0: trace_layer(model, 0, ids=ids)})
    path = tmp_path_factory.mktemp("hostile") / "page.html"
    path.write_text(page_html(page_data([titled])), encoding="utf-8")
    return path


def assert_harmless(page, text):
    assert page.tab.title() == r"<b>\udc8c · regard"
    assert page.tab.evaluate("document.querySelectorAll('#regard :is(script, img, iframe, style, link)').length") == 0
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 1440
    assert [c for c in REORDERING + UNSEEN if c in text] == []
    assert text.count("\u2068") == text.count("\u2069")
    assert len(text) < 40_000


@pytest.mark.parametrize("words", ["false", "true"])
@pytest.mark.parametrize("view", VIEWS)
def test_hostile_tokens_run_nothing_and_break_nothing(browser, file, view, words):
    with opened(browser, file, f"view={view}&head=0.0&looks={HOSTILE.index(LONG)}&words={words}") as page:
        assert page.tab.locator("nav [aria-current=page]").get_attribute("data-view") == view
        assert "xxxxxxxx…" in page.tab.locator("#regard").text_content()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Escape"):
            page.tab.keyboard.press(key)
            assert_harmless(page, page.tab.locator("#regard").text_content())


def test_every_hostile_token_is_a_unit_of_the_text(browser, file):
    with opened(browser, file, "view=head&head=0.0") as page:
        units = page.tab.locator(".text .unit").all_text_contents()
    assert len(units) == 103
    assert units[3:8] == ['"]}', r"\x00\x1b[31m", r"\u202egnp", r"\u2066a\u2067b", r"\u200f\u061c"]
    assert units[9:12] == ["∅", r"\ud83d", r"\udc8c"]


def test_hostile_tokens_are_found(browser, file):
    with opened(browser, file, "view=head&head=0.0") as page:
        for text, found in (
            ('"]}', '"]}'),
            (r"\x1b", "There is no word"),
            (r"\u202egnp", r"\u202egnp"),
            ("__proto__", "__proto__"),
            ("<img", "<img"),
        ):
            page.tab.locator(".find").fill(text)
            page.tab.keyboard.press("Enter")
            assert found in page.text("h1") + page.text(".live")
        assert_harmless(page, page.tab.locator("#regard").text_content())


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_tokens_make_a_valid_svg_that_holds_only_text(browser, file, view):
    with opened(browser, file, f"view={view}&head=0.0&looks=3") as page:
        with page.tab.expect_download() as download:
            page.tab.get_by_role("button", name="SVG", exact=True).click()
        content = download.value.path().read_text(encoding="utf-8")
    root = ElementTree.fromstring(content)
    tags = {one.tag.rpartition("}")[2] for one in root.iter()}
    assert tags.isdisjoint({"script", "foreignObject", "a", "img"})
    assert [name for one in root.iter() for name in one.attrib if name.lower().startswith("on")] == []
    text = "".join(root.itertext())
    assert [c for c in REORDERING + UNSEEN if c in text] == []


def test_a_token_cannot_move_its_neighbours(browser, tmp_path):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    pieces = ["one", " \u202etwo", " \u2067three", " مرحبا", " four", " five"]
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, len(pieces), 6))
    file = tmp_path / "bidi.html"
    file.write_text(page_html(page_data([Titled("", seen, tokens=TextTokens(pieces))])), encoding="utf-8")
    with opened(browser, file, "head=0.0&looks=5") as page:
        lefts = page.tab.locator(".text .unit").evaluate_all("all => all.map(one => one.getBoundingClientRect().left)")
        assert lefts == sorted(lefts)
        assert page.tab.locator(".text").first.get_attribute("dir") == "ltr"


def test_a_text_that_runs_from_right_to_left_does_so_on_the_page(browser, tmp_path):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    pieces = ["مرحبا", " يا", " قطة"]
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, len(pieces), 6))
    file = tmp_path / "arabic.html"
    file.write_text(page_html(page_data([Titled("", seen, tokens=TextTokens(pieces))])), encoding="utf-8")
    with opened(browser, file, "head=0.0&looks=2") as page:
        lefts = page.tab.locator(".text .unit").evaluate_all("all => all.map(one => one.getBoundingClientRect().left)")
        assert lefts == sorted(lefts, reverse=True)


@pytest.mark.parametrize("pieces", [[], [""]])
def test_an_empty_text_is_a_page(browser, tmp_path, pieces):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, len(pieces), 6))
    file = tmp_path / "empty.html"
    file.write_text(page_html(page_data([Titled("", seen, tokens=TextTokens(pieces))])), encoding="utf-8")
    with opened(browser, file, "view=heads") as page:
        for view in ("head", "compare", "heads"):
            page.tab.locator(f"nav [data-view={view}]").click()
            assert page.tab.locator(".text .unit").all_text_contents() == ["∅"] * len(pieces)
            if not pieces:
                assert page.text("h1") == "This text has no tokens."
