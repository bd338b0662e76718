"""Compare in a browser: what it shows is what regard.heads.report.listings says."""

import pytest
import torch
from chromium import address_of, needs_chromium
from chromium import opened_html as opened

import regard
from regard.heads.measure.registry import BY_NAME
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

pytestmark = [pytest.mark.slow, needs_chromium]

TEXT = "Alice was beginning to get very tired, and Alice was beginning to get very tired of it."
LAYER, HEAD = 0, 2  # switched off
# The weights of a row of the first map, as they are written below it when they are pointed at.
READ_ROW = """row => {
  const grid = document.querySelector(".compared .map-grid"), box = grid.getBoundingClientRect();
  const size = parseFloat(grid.style.width) / Number(grid.getAttribute("aria-colcount"));
  return Array.from({ length: row + 1 }, (_, col) => {
    const at = { clientX: box.left + (col + 0.5) * size, clientY: box.top + (row + 0.5) * size, bubbles: true };
    grid.dispatchEvent(new PointerEvent("pointermove", at));
    return Number(document.querySelector(".compared .at").textContent.split(" ").at(-1));
  });
}"""


def watched(model, text=TEXT):
    ids = model.tokenizer.encode(text)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([ids]))
    return seen, TextTokens(model.tokenizer.pieces(ids))


@pytest.fixture(scope="module")
def reports():
    model = regard.GPT.from_pretrained("tiny")
    before, tokens = watched(model)
    short, few = watched(model, "The cat sat")
    attention = [module for name, module in model.named_modules() if name.endswith("out_proj")][LAYER]
    width = attention.weight.shape[1] // before.sizes()[LAYER][0][1]
    attention.weight.data[:, HEAD * width : (HEAD + 1) * width] = 0
    after, _ = watched(model)
    return [
        Titled("whole", before, tokens=tokens),
        Titled("without 0.2", after, tokens=tokens),
        Titled("cat", short, tokens=few),
    ]


@pytest.fixture(scope="module")
def html(reports):
    return page_html(page_data(reports))


def test_heads_come_in_the_order_of_comparison_changed(reports, html, tmp_path):
    comparison = reports[0].seen.compare(reports[1].seen)
    with opened(html, tmp_path, "view=compare") as page:
        rows = page.locator("[role=option].change")
        shown = [rows.nth(i).get_attribute("data-head") for i in range(rows.count())]
    changed = [f"{one.layer}.{one.head}" for one in comparison.changed()]
    assert shown[: len(changed)] == changed  # the others changed for some word only


def test_all_heads_are_listed_on_demand_in_the_order_of_the_comparison(reports, html, tmp_path):
    with opened(html, tmp_path, "view=compare") as page:
        page.locator("button.more").click()
        rows = page.locator("[role=option].change")
        shown = [rows.nth(i).get_attribute("data-head") for i in range(rows.count())]
    every = [f"{one.layer}.{one.head}" for one in reports[0].seen.compare(reports[1].seen)]
    assert sorted(shown) == sorted(every)


def test_a_head_shows_the_means_of_the_statistic_that_changed_most(reports, html, tmp_path):
    first = reports[0].seen.compare(reports[1].seen)[0]
    place = (first.layer, first.head)
    before, after = (one.seen.portraits()[place] for one in reports[:2])
    shares = {name: abs(after.shares()[name] - before.shares()[name]) for name in first.differences}
    most = max(shares, key=shares.get)
    with opened(html, tmp_path, f"view=compare&head={first.layer}.{first.head}") as page:
        row = page.locator("[role=option].change").first
        assert row.locator(".values").text_content() == f"{before.means[most]:.2f} → {after.means[most]:.2f}"
        assert (
            f"Head {first.layer}.{first.head}: {BY_NAME[most].heading or most}" in page.locator(".ask p").text_content()
        )


def test_the_keys_of_a_word_are_both_weights_of_it(reports, html, tmp_path):
    layer, head, query = 4, 3, 11
    weights = [one.seen[layer, head].weights(query)[0, 0] for one in reports[:2]]
    with opened(html, tmp_path, f"view=compare&head={layer}.{head}&looks={query}") as page:
        page.wait_for_selector(".compare[data-compared]")
        rows = page.locator(".key-row[data-key]")
        shown = {
            int(rows.nth(i).get_attribute("data-key")): rows.nth(i).locator(".num").text_content()
            for i in range(rows.count())
        }
    moved = (weights[1] - weights[0]).abs().topk(3).indices.tolist()
    assert list(shown)[:3] == moved
    assert shown == {key: f"{weights[0][key]:.2f} → {weights[1][key]:.2f}" for key in shown}


def test_texts_of_different_length_have_no_difference_and_say_so(reports, html, tmp_path):
    T, short = reports[0].seen.sizes()[0][0][2], reports[2].seen.sizes()[0][0][2]
    with opened(html, tmp_path, "view=compare&other=2") as page:
        page.wait_for_selector(".compare[data-compared]")
        assert page.locator(".compare .note").first.text_content() == (
            f"One has {T} tokens, the other {short}, and few in common: "
            "there is no difference of the maps and no comparison word by word."
        )
        assert page.locator(".compared:visible").count() == 2
        assert page.locator(".key-row:visible").count() == 0
        assert page.locator("[role=option].change").count() == len(reports[0].seen.compare(reports[2].seen).changed())


def test_two_heads_of_one_report_are_compared_statistic_by_statistic(reports, tmp_path):
    means = [reports[0].seen[place].summary for place in [(4, 3), (0, 2)]]
    with opened(page_html(page_data(reports[:1])), tmp_path, "view=compare&head=4.3&against=0.2") as page:
        assert page.locator(".ask h1").text_content() == "How do heads 4.3 and 0.2 differ?"
        rows = page.locator(".change[data-statistic]")
        shown = {
            rows.nth(i).get_attribute("data-statistic"): rows.nth(i).locator(".values").text_content()
            for i in range(rows.count())
        }
    assert shown == {
        name: f"{means[0][name]:.2f} → {means[1][name]:.2f}" for name in means[0] if means[0][name] == means[0][name]
    }


def test_the_head_to_compare_with_is_kept_in_the_address(reports, tmp_path):
    with opened(page_html(page_data(reports[:1])), tmp_path, "view=compare&head=4.3") as page:
        page.locator(".picker").nth(1).focus()
        page.keyboard.press("ArrowRight")
        assert "against=" in address_of(page)


def test_the_first_map_slides_into_the_second(reports, html, tmp_path):
    """Row 17 of head 4.3, read under the pointer at every key."""
    row = 17
    before, after = (one.seen[4, 3].weights()[0, row, : row + 1] for one in reports[:2])
    assert (after - before).abs().max() > 0.05
    with opened(html, tmp_path, "view=compare&head=4.3") as page:
        page.wait_for_selector("[data-compared]")
        slider = page.get_by_role("slider", name="from the first to the second")
        for share in (0.0, 0.5, 1.0):
            slider.evaluate("(el, to) => { el.value = to; el.dispatchEvent(new Event('input')); }", share)
            shown = torch.tensor(page.evaluate(READ_ROW, row))
            torch.testing.assert_close(shown, before + share * (after - before), atol=0.0051, rtol=0)
        assert "1.00 of the way, mixed of both" in page.locator(".scrub").inner_text()
        page.evaluate("location.hash = 'view=compare&head=4.4'")  # of another head it begins at the first again
        page.wait_for_function("document.querySelector('.scrub input').value === '0'")
