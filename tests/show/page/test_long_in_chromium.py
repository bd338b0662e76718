"""A long text in a browser: what it shows are the weights of the report."""

import pytest
import torch
from chromium import address_of, needs_chromium
from chromium import opened_html as opened
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

pytestmark = needs_chromium

H, D, LONG, SHORT = 2, 5, 1217, 131


class Attention(nn.Module):
    def forward(self, q, k):
        return scaled_dot_product_attention(q, k, k, is_causal=True)


def report(T):
    torch.manual_seed(3)
    with torch.no_grad(), regard.watch(model := Attention()) as seen:
        model(3 * torch.randn(1, H, T, D), torch.randn(1, H, T, D))
    return Titled(f"{T} tokens", seen, tokens=TextTokens([f" w{i % 97}" for i in range(T)]))


@pytest.fixture(scope="module")
def reports():
    return {T: report(T) for T in (LONG, SHORT)}


def shown_rows(page):
    rows = page.locator(".looked tr[data-unit]")
    return {
        int(rows.nth(i).get_attribute("data-unit")): rows.nth(i).locator("td").first.text_content()
        for i in range(rows.count())
    }


@pytest.mark.parametrize("T", [LONG, SHORT])
def test_the_largest_weights_of_a_word_are_those_of_the_report(reports, T, tmp_path):
    query, head = T - 9, 1
    top = reports[T].seen[0, head].top(8)
    wanted = dict(zip(top.keys[0, query].tolist(), top.weights[0, query].tolist(), strict=True))
    with opened(page_html(page_data([reports[T]])), tmp_path, f"view=long&head=0.{head}&looks={query}") as page:
        assert shown_rows(page) == {key: f"{weight:.2f}" for key, weight in wanted.items() if weight >= 0.005}
        first = max(wanted, key=wanted.get)
        assert page.locator(".looked .far").first.text_content() == f"{query - first} tokens back"
        assert page.locator(".ask h1").text_content() == f"Where does w{query % 97}@{query} look, among {T} tokens?"


def test_pointing_at_the_map_reads_the_share_of_a_block(reports, tmp_path):
    mass = reports[LONG].seen[0, 0].weights()[0]
    with opened(page_html(page_data([reports[LONG]])), tmp_path, "view=long&head=0.0") as page:
        box = page.locator(".zoom-map .map-grid").bounding_box()
        page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.75 * box["height"])
        line = page.locator(".readout-line").text_content()
    ranges, share = line.removeprefix("tokens ").split(": ")
    (q0, q1), (k0, k1) = ([int(at) for at in part.split("–")] for part in ranges.split(" → "))
    assert share.endswith(" of their attention")
    assert float(share.split(" ")[0]) == pytest.approx(float(mass[q0 : q1 + 1, k0 : k1 + 1].sum(-1).mean()), abs=2e-5)
    assert q0 <= 0.75 * LONG <= q1 + 1
    assert k0 <= 0.25 * LONG <= k1 + 1


def test_zooming_in_reaches_single_weights_and_all_goes_back(reports, tmp_path):
    with opened(page_html(page_data([reports[LONG]])), tmp_path, "view=long") as page:
        cells = page.locator(".cells")
        assert cells.text_content() == "cells of 3 × 3 tokens; zoom in for single weights"
        for _ in range(8):
            page.get_by_label("zoom in").click()
        assert cells.text_content() == "single tokens; of each row its 8 largest weights"
        page.get_by_label("all of the text").click()
        assert cells.text_content() == "cells of 3 × 3 tokens; zoom in for single weights"
        page.locator(".zoom-map .map-cell").focus()
        for _ in range(8):
            page.keyboard.press("+")
        assert cells.text_content() == "single tokens; of each row its 8 largest weights"


def test_one_head_of_a_long_text_is_shown_by_long(reports, tmp_path):
    with opened(page_html(page_data([reports[LONG]])), tmp_path, "view=head") as page:
        tabs = page.locator("nav button:visible")
        assert "Head" not in [tabs.nth(i).text_content() for i in range(tabs.count())]
        assert page.locator("nav [aria-current=page]").text_content() == "Long"
        page.locator("nav [data-view=heads]").click()
        page.locator(".heads .one").nth(1).click()
        assert page.locator("nav [aria-current=page]").text_content() == "Long"
        assert page.locator(".long-head select").input_value() == "0.1"


def test_turning_the_page_of_the_text_leaves_the_focus(reports, tmp_path):
    with opened(page_html(page_data([reports[LONG]])), tmp_path, "view=long&looks=7") as page:
        assert "tokens 0–599 of 1217" in page.locator(".long-text h2").text_content()
        page.get_by_text("later").click()
        assert "tokens 600–1199 of 1217" in page.locator(".long-text h2").text_content()
        assert page.locator(".ask h1 em").text_content() == "w7"


def test_a_drag_moves_the_map_and_pins_nothing(reports, tmp_path):
    with opened(page_html(page_data([reports[LONG]])), tmp_path, "view=long") as page:
        for _ in range(4):
            page.get_by_label("zoom in").click()
        box = page.locator(".zoom-map .map-grid").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        before = page.locator(".readout-line").text_content()
        page.mouse.down()
        page.mouse.move(x - 90, y - 60, steps=3)
        page.mouse.up()
        assert "looks=" not in address_of(page)
        page.mouse.move(x, y)
        assert page.locator(".readout-line").text_content() != before
        page.mouse.click(x, y)
        assert "looks=" in address_of(page)


def test_a_head_with_queries_and_keys_shows_every_weight(reports, tmp_path):
    seen, head = reports[LONG].seen, 1
    exact = Titled("", seen, tokens=reports[LONG].tokens, exact=[(0, head)])
    with opened(page_html(page_data([exact])), tmp_path, f"view=long&head=0.{head}") as page:
        box = page.locator(".zoom-map .map-grid").bounding_box()
        y = round(box["y"] + 0.75 * box["height"])
        query = int((y - box["y"]) / box["height"] * LONG)
        weights = seen[0, head].weights(query)[0, 0]
        rest = weights.clone()
        rest[seen[0, head].top(8).keys[0, query]] = 0
        # A wheel turns at whole pixels: the heaviest key, outside of the largest eight, that is at one.
        places = range(round(box["x"]) + 9, round(box["x"] + 0.7 * box["width"]))
        keys = {int((x - box["x"]) / box["width"] * LONG): x for x in places}
        key = max(keys, key=lambda key: rest[key])
        page.mouse.move(keys[key], y)
        for _ in range(20):
            page.mouse.wheel(0, -120)
        assert page.locator(".cells").text_content().startswith("a cell for each weight, ±0.0")
        page.mouse.move(keys[key] + 1, y)
        page.mouse.move(keys[key], y)
        line = page.locator(".readout-line").text_content()
    assert weights[key] >= 0.01
    assert line == f"w{query % 97}@{query} → w{key % 97}@{key}: {weights[key]:.2f}"
