"""The page of a training run in a browser: scrubbing shows the numbers of that step, the moment is that of Python."""

import math
import os
from pathlib import Path

import pytest
from chromium import address_of, needs_chromium, opened
from test_training_page import BIRTH, STEPS, made_run

from regard.heads.atlas.timeline import Loss
from regard.show.page.training_page import training_page

pytestmark = [pytest.mark.slow, needs_chromium]

AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"
STATES = ("", "step=10&head=0.1&of=entropy", "step=50&of=induction", "of=probe.previous")


@pytest.fixture(scope="module")
def run():
    return made_run()


@pytest.fixture(scope="module")
def file(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "training.html"
    path.write_text(training_page(run, "first"), encoding="utf-8")
    return path


def shown(value, noise):
    known = "" if math.isnan(noise) else f" ± {noise:.3f}" if noise < 0.01 else f" ± {noise:.2f}"
    return f"{value:.2f}{known}"


def value_of(page, name):
    return page.text(f".run-card li:has([data-of='{name}']) .num")


def at(page, head, step):
    page.ready(f"{head}@{step}")


def test_it_opens_at_the_moment_that_python_computed(browser, run, file):
    [birth] = run.births("induction")
    with opened(browser, file) as page:
        at(page, f"{birth.layer}.{birth.head}", birth.step)
        assert page.text(".ask p") == f"At step {BIRTH}, in head 1.2."
        assert page.tab.locator(".birth").count() == 1
        assert page.tab.locator(".birth").get_attribute("data-step") == str(BIRTH)
        assert page.tab.locator(".birth text").text_content() == f"induction: 1.2, step {BIRTH}"
        assert page.text(".run-readout") == f"step {BIRTH} · loss {run[1].loss:.2f} · after {BIRTH // 2} s"


def test_every_step_shows_the_numbers_of_its_atlas(browser, run, file):
    with opened(browser, file, "step=10&head=0.1") as page:
        for i, moment in enumerate(run):
            if i:
                page.tab.keyboard.press("ArrowRight")
            at(page, "0.1", moment.step)
            head = moment.atlas[0, 1]
            assert page.text(".run-card h2").startswith(f"0.1 {head.role.name}")
            for name in ("induction", "previous", "duplicate"):
                wanted = shown(head.probe[name], head.probe_noise[name])
                assert value_of(page, f"probe.{name}") == wanted
            for name in ("sink", "previous", "entropy", "distance", "largest"):
                assert value_of(page, name) == shown(*head.over_texts(name))
            assert page.tab.locator("input[type=range]").get_attribute("aria-valuetext") == (
                f"step {moment.step}, loss {moment.loss:.2f}"
            )


def test_the_address_keeps_step_head_and_statistic_and_brings_them_back(browser, file):
    with opened(browser, file) as page:
        page.tab.keyboard.press("Home")
        at(page, "1.2", STEPS[0])
        page.tab.keyboard.press("[")
        at(page, "1.1", STEPS[0])
        page.tab.locator("[data-of=entropy]").click()
        page.tab.wait_for_selector("[data-of=entropy][aria-pressed=true]")
        page.tab.wait_for_function("() => location.hash.includes('of=entropy')")
        address = address_of(page.tab)
        assert sorted(address.split("#")[1].split("&")) == ["head=1.1", "of=entropy", "step=10"]
        text = page.tab.locator("main").inner_text()
        page.tab.goto("about:blank")
        page.open(address)
        at(page, "1.1", STEPS[0])
        assert page.tab.locator("main").inner_text() == text
        page.open(f"{address.split('#')[0]}#step=nothing&head=9.9&of=what")
        page.tab.reload()
        at(page, "1.2", BIRTH)


def test_play_goes_to_the_end_and_the_map_and_the_slider_choose(browser, file):
    with opened(browser, file, "step=10") as page:
        at(page, "1.2", STEPS[0])
        page.tab.keyboard.press(" ")
        at(page, "1.2", STEPS[-1])
        page.tab.wait_for_selector(".run-play:has-text('play')")
        page.tab.wait_for_function("() => location.hash.includes('step=50')")
        page.tab.locator(".run-heads .picker").click(position={"x": 40, "y": 30})
        at(page, "0.0", STEPS[-1])
        page.tab.locator("input[type=range]").fill("12")
        at(page, "0.0", STEPS[0])
        box = page.tab.locator(".run-chart").bounding_box()
        page.tab.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2)
        at(page, "0.0", BIRTH)
    with opened(browser, file, "step=10", reduced_motion="reduce") as page:
        page.tab.locator(".run-play:has-text('next')").click()
        at(page, "1.2", BIRTH)


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


def test_one_step_a_loss_that_is_nan_and_no_induction_are_said(browser, tmp_path):
    page_file = tmp_path / "one.html"
    page_file.write_text(training_page(made_run((10,), [Loss(10, math.nan)]), "<b>"), encoding="utf-8")
    with opened(browser, page_file) as page:
        page.ready()
        assert page.text(".ask p").startswith("No head learned induction in this run. Nearest is")
        assert page.tab.locator("input[type=range]").is_hidden()
        assert page.tab.locator(".run-chart path.curve").get_attribute("d") == ""
        assert page.tab.locator("header b:has-text('<b>')").count() == 0
        page.tab.keyboard.press("ArrowRight")
        page.tab.keyboard.press(" ")
        assert page.text(".run-readout").startswith("step 10 · loss")
    page_file.write_text(training_page(made_run((30, 50), [])), encoding="utf-8")
    with opened(browser, page_file) as page:
        page.ready()
        assert page.text(".ask p") == "Before step 30, the first that was kept, in head 1.2."
        assert page.text(".run-card .note") == "Induction before step 30."


def test_a_page_that_is_cut_says_so(browser, file, tmp_path):
    text = file.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    start = text.index('id="block-heads">') + len('id="block-heads">')
    broken.write_text(text[:start] + "AAAA" + text[start + 400 :], encoding="utf-8")
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.goto(broken.as_uri())
    tab.wait_for_selector(".error")
    assert tab.locator(".error").inner_text().startswith("This run cannot be shown: ")
    context.close()
