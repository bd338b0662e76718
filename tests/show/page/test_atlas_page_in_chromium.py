"""The page of an atlas in a browser: every state has an address, keys and access, no message. One browser."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import address_of, needs_chromium, opened

import regard
from regard.heads.atlas.atlas_files import PACKAGED

pytestmark = [pytest.mark.slow, needs_chromium]

AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"
STATES = (
    "",
    "q=role+%3D+local",
    "q=inductin+>+3",
    "q=%22alice%22&rows=word",
    "sort=effect&of=entropy&rows=3",
    "head=4.3",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("atlas") / "atlas.html"
    regard.load_atlas(PACKAGED).to_html(path)
    return path


@pytest.mark.skipif(not AXE.is_file() and not os.environ.get("REGARD_NEEDS_CHROMIUM"), reason="needs npm ci")
@pytest.mark.parametrize("colors", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(browser, file, colors):
    for width in (390, 768, 1440, 2560):
        with opened(browser, file, viewport={"width": width, "height": 900}, bypass_csp=True, **colors) as page:
            page.tab.add_script_tag(path=AXE)
            for state in STATES:
                page.tab.evaluate("hash => { location.hash = hash }", state)
                page.tab.wait_for_timeout(50)
                found = page.tab.evaluate(
                    "axe.run().then(({violations}) => violations.map(one => one.id + one.nodes[0].html))"
                )
                assert (width, state, found) == (width, state, [])
                assert page.tab.evaluate("document.documentElement.scrollWidth") == width


def test_a_query_finds_heads_and_a_wrong_one_says_what_is_accepted(browser, file):
    with opened(browser, file) as page:
        box = page.tab.locator("input[type=search]")
        box.fill("rows induction > 3%")
        page.tab.wait_for_selector(".ask p:has-text('1 of 48: 4.3.')")
        box.press("Enter")
        page.ready("4.3")
        assert "rows+induction" in address_of(page.tab)
        assert "head=4.3" in address_of(page.tab)
        box.fill("inductin > 3")
        page.tab.wait_for_selector("[data-wrong]")
        assert page.text(".said-of-query").startswith("“inductin” is no number of a head; numbers are first,")
        box.press("Escape")
        assert page.text("h1") == "What do the heads of tiny do?"


def test_keys_walk_through_the_heads_and_the_address_brings_each_state_back(browser, file):
    with opened(browser, file, "head=4.3&sort=entropy&of=distance&rows=9&q=layer+%3D+4&theme=dark") as page:
        page.ready("4.3")
        first = page.tab.locator("main").inner_text()
        assert page.tab.locator("#regard").get_attribute("data-theme") == "dark"
        assert [one.inner_text() for one in page.tab.locator(".head-card [aria-pressed=true]").all()] == [
            "distance",
            "10",
        ]
        address = address_of(page.tab)
        page.tab.locator(".strip[data-statistic=entropy]").click()
        page.tab.locator(".picker").focus()
        page.tab.keyboard.press("ArrowRight")
        page.ready("4.4")
        assert page.tab.locator("[role=gridcell]").get_attribute("aria-label").startswith("head 4.4, ")
        page.tab.keyboard.press("]")
        page.ready("4.5")
        page.tab.keyboard.press("ArrowUp")
        page.ready("3.5")
        page.tab.keyboard.press("/")
        assert page.tab.evaluate("document.activeElement.type") == "search"
        page.tab.goto("about:blank")
        page.open(address)
        page.ready("4.3")
        assert page.tab.locator("main").inner_text() == first


def test_examples_show_who_looks_and_where_and_those_with_the_word_of_a_query(browser, file):
    with opened(browser, file, "head=0.2") as page:
        page.ready("0.2")
        rows = page.tab.locator(".examples li")
        assert rows.count() >= 4
        for row in rows.all():
            assert row.locator("em.looks").count() == 1
            assert row.locator(".looked-at").count() >= 1
        page.tab.locator("input[type=search]").fill('"alice"')
        page.tab.get_by_text("with “alice”").click()
        for row in page.tab.locator(".examples li").all():
            assert "alice" in row.locator("p").inner_text().replace(" ", "").lower()


def test_a_thousand_heads_are_one_canvas_and_open_quickly(browser, file, tmp_path):
    atlas = regard.load_atlas(PACKAGED)
    many = replace(atlas, layers=[one for _ in range(21) for one in atlas.layers])
    many.to_html(tmp_path / "many.html")
    with opened(browser, tmp_path / "many.html") as page:
        assert page.tab.locator(".map-column *").count() < 40
        assert page.tab.locator(".strip .tick").count() == page.tab.locator(".strip").count() > 8
        page.tab.locator(".picker").click(position={"x": 30, "y": 300})
        page.tab.wait_for_function("() => location.hash.includes('head=')")
