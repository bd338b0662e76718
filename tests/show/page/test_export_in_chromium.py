"""A view as a file: an SVG that any reader can open, with the words of the page as text, and a PNG of it."""

import base64
import struct
from xml.etree import ElementTree

import pytest
import torch
from chromium import needs_chromium
from chromium import opened_html as opened

import regard
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

pytestmark = [pytest.mark.slow, needs_chromium]

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "The cat sat on the mat, and the cat slept. <b>&\x07"


@pytest.fixture(scope="module")
def seen():
    model = regard.GPT.from_pretrained("tiny")
    ids = model.tokenizer.encode(TEXT)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([ids]))
    return Titled("tiny & <co>", seen, tokens=TextTokens(model.tokenizer.pieces(ids)))


@pytest.fixture(scope="module")
def html(seen):
    return page_html(page_data([seen]))


def saved(page, kind):
    """The file that a button gives, and its name."""
    with page.expect_download() as download:
        page.get_by_role("button", name=kind, exact=True).click()
    return download.value.path().read_bytes(), download.value.suggested_filename


def words(content):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(content).iter(f"{SVG}text")]


@pytest.mark.parametrize("view", ["heads", "head", "compare"])
@pytest.mark.parametrize("dark", [False, True])
def test_every_view_is_saved_as_an_svg_with_its_words(html, tmp_path, view, dark):
    with opened(html, tmp_path, f"view={view}&head=4.3", dark=dark) as page:
        content, name = saved(page, "SVG")
        asked = page.locator(".ask h1").inner_text()
    assert name == ("tiny-co-heads.svg" if view == "heads" else f"tiny-co-{view}-4.3.svg")
    root = ElementTree.fromstring(content)
    text = "".join(words(content)).replace(" ", "")
    assert asked.replace(" ", "").replace("\n", "") in text
    assert "cat" in words(content)
    assert root.find(f"{SVG}rect").get("fill") == ("#121417" if dark else "#fdfdfb")
    images = [one.get("href") for one in root.iter(f"{SVG}image")]
    assert images
    assert all(base64.b64decode(image.removeprefix("data:image/png;base64,"))[:4] == b"\x89PNG" for image in images)
    assert b"foreignObject" not in content
    assert b"http" not in content.replace(b"http://www.w3.org/", b"")


def test_the_map_of_a_head_is_where_the_page_shows_it(html, tmp_path):
    with opened(html, tmp_path, "view=head&head=4.3") as page:
        content, _ = saved(page, "SVG")
        canvas, ask = page.locator(".map canvas").bounding_box(), page.locator(".ask").bounding_box()
    images = [
        {name: float(one.get(name)) for name in ("x", "y", "width", "height")}
        for one in ElementTree.fromstring(content).iter(f"{SVG}image")
    ]
    place = {
        "x": canvas["x"] - ask["x"] + 24,
        "y": canvas["y"] - ask["y"] + 24,
        "width": canvas["width"],
        "height": canvas["height"],
    }
    assert any(image == pytest.approx(place, abs=0.1) for image in images)


def test_a_png_has_twice_the_pixels_of_the_svg_and_is_not_blank(html, tmp_path):
    with opened(html, tmp_path, "view=head&head=4.3", width=900, height=700) as page:
        svg, _ = saved(page, "SVG")
        content, name = saved(page, "PNG")
    assert name == "tiny-co-head-4.3.png"
    width, height = struct.unpack(">II", content[16:24])
    root = ElementTree.fromstring(svg)
    assert (width, height) == pytest.approx((2 * float(root.get("width")), 2 * float(root.get("height"))), abs=2)
    assert len(content) > 20_000


def test_text_that_is_scrolled_out_of_sight_is_not_saved(seen, tmp_path):
    long = TextTokens([f" word{i}" for i in range(len(seen.tokens))])
    pieces = Titled("", seen.seen, tokens=TextTokens([piece + 9 * "\n" for piece in long]))
    with opened(page_html(page_data([pieces])), tmp_path, "view=heads") as page:
        content, _ = saved(page, "SVG")
    shown = [word for word in words(content) if word.startswith("word")]
    assert "word0" in shown
    assert f"word{len(seen.tokens) - 1}" not in shown
