"""The served page in a browser: a text of one's own, typed and seen."""

import pytest
import torch
from chromium import address_of, chromium, needs_chromium, opened

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from running import running

import regard
from regard.commands.serve import page_of
from regard.commands.shared.models import load_reader
from regard.show.page.payload import Titled, page_data
from regard.show.server.limits import Limits
from regard.support.tokens import TextTokens

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def see():
    model = regard.GPT.from_pretrained("tiny")

    def run(name, text):
        ids = model.tokenizer.encode(text)
        with torch.no_grad(), regard.watch(model) as seen:
            model(torch.tensor([ids]))
        titled = Titled(name, seen, tokens=TextTokens(model.tokenizer.pieces(ids)))
        return page_data([titled], thumbnails=True)

    return run


def type_text(page, text):
    page.tab.locator(".own textarea").fill(text)
    page.tab.keyboard.press("Enter")


def test_a_typed_text_is_shown_and_has_an_address_of_its_own(browser, see, monkeypatch):
    with (
        running(see, monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/", offline=False) as page,
    ):
        assert page.text(".text") == "The cat"
        type_text(page, "the dog sat <img src=x onerror=alert(1)> on the mat")
        page.tab.locator(".text", has_text="dog").wait_for()
        assert page.tab.locator("img").count() == 0
        assert page.tab.evaluate("document.activeElement.tagName") == "TEXTAREA"
        address = address_of(page.tab)
        page.tab.go_back()
        page.tab.locator(".text", has_text="cat").wait_for()
        page.open(address)
        assert page.text(".text").startswith("the dog sat")


def test_small_pictures_of_all_heads_are_one_request(browser, see, monkeypatch):
    with (
        running(see, monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/", "head=3.2", offline=False) as page,
    ):
        asked = []
        page.tab.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        page.tab.reload()
        page.ready("3.2")
        page.tab.wait_for_selector(".side canvas")
        blocks = [name for name in asked if "." in name.partition("#")[0]]
        assert sorted(blocks) == ["strongest.0", "thumbnails.0", "weights.0.3.2"]


def test_the_chosen_head_stays_when_the_text_changes_and_a_pin_does_not(browser, see, monkeypatch):
    with (
        running(see, monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/", "head=2.1&looks=1", offline=False) as page,
    ):
        type_text(page, "a dog sat")
        page.tab.locator(".text", has_text="dog").wait_for()
        page.ready("2.1")
        assert "looks" not in address_of(page.tab)


def test_a_report_that_is_no_longer_kept_is_made_again(browser, see, monkeypatch):
    with (
        running(see, Limits(kept_bytes=1), monkeypatch=monkeypatch) as (app, port),
        opened(browser, f"http://127.0.0.1:{port}/", offline=False) as page,
    ):
        app.state.kept._reports.clear()
        page.tab.goto(f"http://127.0.0.1:{port}/#head=3.2")
        page.ready("3.2")
        page.tab.keyboard.press("]")
        page.ready("3.3")
        page.messages.clear()  # the browser reports the 404


def test_a_refusal_is_shown_and_the_page_stays(browser, see, monkeypatch):
    with (
        running(see, Limits(characters=17), monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/", offline=False) as page,
    ):
        type_text(page, "this text is too long")
        page.tab.locator(".own p", has_text="The text has 21 characters; at most 17 are read. Shorten it.").wait_for()
        assert page.text(".text") == "The cat"
        assert page.text(".own button") == "see"
        page.messages.clear()  # the browser reports the 413


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_window(browser, see, width, monkeypatch):
    size = {"width": width, "height": 900}
    with (
        running(see, monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/", offline=False, viewport=size) as page,
    ):
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_head_is_cut_by_a_click_and_compared_with_the_uncut_text(browser, monkeypatch):
    reader = load_reader("tiny", "cpu")

    def see(name, text, cut=None):
        return page_of(name, reader, text, 512, cut)

    with (
        running(see, cuts=True, monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/?text=the+cat+sat+and+the+cat+sat#head=0.2", offline=False) as page,
    ):
        page.tab.locator("button.cut").click()
        page.tab.locator("button[aria-current=page]", has_text="Compare").wait_for()
        assert "&cut=0.2" in address_of(page.tab)
        page.ready()
        assert page.messages == []
        page.tab.go_back()
        page.tab.locator("button.cut").wait_for()


def test_every_view_is_shown_by_the_server_and_the_console_stays_empty(browser, see, monkeypatch):
    with (
        running(see, monkeypatch=monkeypatch) as (_, port),
        opened(browser, f"http://127.0.0.1:{port}/", offline=False) as page,
    ):
        type_text(page, "the cat sat on the mat and " * 17)
        page.tab.locator(".text:visible", has_text="sat on the mat and").wait_for()
        for view in ("heads", "head", "steps", "long", "compare"):
            page.tab.locator(f'nav [data-view="{view}"]').click()
            page.tab.wait_for_selector(f'#regard[data-view="{view}"]')
            assert page.text("h1").endswith("?")
            assert page.tab.locator(".view .error:visible").count() == (view == "steps")
        page.tab.wait_for_selector(".compare[data-compared]")
    # opened() asserts that the console said nothing
