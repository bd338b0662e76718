"""The views Layer and Flow, and play, in a browser: what is shown, what can be chosen, and what moves."""

import re

import pytest
import torch
from chromium import needs_chromium, opened

import regard
from regard.show.page.write import titled_texts, write_page

pytestmark = [pytest.mark.slow, needs_chromium]

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)


@pytest.fixture(scope="module")
def seen():
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(ALICE)])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    return seen


@pytest.fixture(scope="module")
def file(seen, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "page.html"
    write_page(path, titled_texts(seen, "tiny"), {"layer": 4, "head": 3})
    return path


def ready(page, view):
    page.tab.wait_for_selector(f'#regard[data-view="{view}"] .view > .columns[data-ready]')


def test_a_layer_says_who_receives_most_and_from_which_head(browser, file, seen):
    with opened(browser, file, "view=layer&head=4.3") as page:
        ready(page, "layer")
        received = seen[4].received[0]
        share = received.mean(0) / received.mean(0).sum()
        first = page.text(".most li:first-child")
        best = int(share.argmax())
        assert first.startswith(f"{seen.tokens[0].pieces[best].strip()}@{best} {float(share[best]):.2f}")
        assert first.endswith(f"4.{int((received / received.sum(-1, keepdim=True))[:, best].argmax())}")


def test_a_word_is_shown_in_every_head_of_a_layer_with_its_weights(browser, file, seen):
    with opened(browser, file, "view=layer&head=4.3&looks=25") as page:
        ready(page, "layer")
        assert page.text("h1").startswith("Where does very@25 look in layer 4?")
        notes = page.tab.locator(".strips").first.locator("text.note").all_text_contents()
        weights = seen[4].weights(rows=25)[0, :, 0]
        wanted = [f"{seen.tokens[0].labels[int(one.argmax())]} {float(one.max()):.2f}" for one in weights]
        assert notes[:8] == wanted
        page.tab.locator(".strips .map-cell").first.focus()
        page.tab.keyboard.press("ArrowUp")
        page.tab.keyboard.press("End")
        assert page.tab.locator(".strips .map-cell").first.get_attribute("aria-label").endswith("hidden by the mask")


def test_a_flow_names_the_circuit_and_the_cut_that_proves_it(browser, file, seen):
    with opened(browser, file, "view=flow&head=4.3&looks=22&step=3.") as page:
        ready(page, "flow")
        assert page.text("h1") == "How does beginning@3 reach beginning@22?"
        best = regard.routes(seen, 3, 22)[0]
        strength = page.text(".route-list li:first-child .num")
        assert strength == f"{best.strength:.2f}"
        cut = page.text(".flow pre")
        for move in best.moves:
            assert f"regard.cut(model, heads=({move.layer}, {move.head}), edges=[({move.query}, {move.key})])" in cut
        page.tab.get_by_role("button", name="mean of the heads").click()
        page.tab.wait_for_selector('[data-by="mean"][aria-pressed="true"]')
        rollout = float(seen.rollout(22)[0, 0, 3])
        assert f"{rollout:.2f}" in page.text(".ask p")
        share = regard.routes(seen, 3, 22, by="mean")[0].share
        assert page.text(".route-list li:first-child .num") == f"{100 * share:.1f}%"


def test_a_long_text_has_no_layer_and_no_flow_and_says_why(browser, tmp_path):
    layer = regard.MultiHeadAttention(8, 8, None, 0.0, 2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 521, 8))
    path = tmp_path / "page.html"
    write_page(path, titled_texts(seen, "long"))
    for view in ("layer", "flow"):
        with opened(browser, path, f"view={view}") as page:
            ready(page, view)
            assert "521 tokens this page holds" in page.text(".view .error")
            assert not page.tab.locator(".strips:visible, .routes:visible").count()


def test_play_reads_word_by_word_until_it_is_stopped_and_only_if_pressed(browser, file):
    with opened(browser, file, "view=head&head=4.3") as page:
        before = page.text("h1")
        page.tab.wait_for_timeout(600)
        assert page.text("h1") == before
        page.tab.get_by_role("button", name="play").click()
        page.tab.wait_for_timeout(900)
        page.tab.get_by_role("button", name="stop").click()
        stopped = page.text("h1")
        assert stopped != before
        page.tab.wait_for_timeout(600)
        assert page.text("h1") == stopped
        page.tab.get_by_role("button", name="step", exact=True).click()
        assert page.text("h1") != stopped


def test_who_wants_less_motion_reads_one_word_at_a_time(browser, file):
    with opened(browser, file, "view=head&head=4.3", reduced_motion="reduce") as page:
        page.tab.get_by_role("button", name="play").click()
        first = page.text("h1")
        page.tab.wait_for_timeout(600)
        assert page.text("h1") == first
        assert re.search(r"Where does Al(@0)? ?look", first)
