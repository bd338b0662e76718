"""The view Steps in a browser: the numbers on the page are those of the trace, and the sums hold."""

import math
import re

import pytest
import torch
from chromium import address_of, needs_chromium, opened

import regard
from regard.commands.ladder_page import ladder_reports
from regard.show.page.html import page_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens
from regard.traces.trace import trace_layer

pytestmark = needs_chromium

TEXT = "The cat sat on the mat because it was tired"
LAYER, HEAD, IT, CAT = 3, 3, 7, 1
CHOSEN = f"view=steps&head={LAYER}.{HEAD}&looks={IT}&step={CAT}."
READ = """() => Object.fromEntries([...document.querySelectorAll("li.step")].map((row) => [row.dataset.step, {
  said: [...row.querySelectorAll(".step-line")].map((line) => ({
    sum: line.querySelector(".sum").dataset.text ?? "", number: line.querySelector(".followed").textContent,
    note: line.querySelector(".note").textContent })),
  keys: Object.fromEntries([...row.querySelectorAll(".key-cell")].map((cell) => [cell.dataset.key, cell.textContent])),
}]))"""


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def cat(model, folder):
    """A page with the steps of one layer, and their trace."""
    ids = model.tokenizer.encode(TEXT)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([ids]))
    trace = trace_layer(model, LAYER, torch.tensor([ids]))
    tokens = TextTokens(model.tokenizer.pieces(ids))
    return write(folder / "cat.html", [Titled("tiny", seen, tokens=tokens, steps={LAYER: trace})]), trace


def write(file, reports):
    file.write_text(page_html(page_data(reports)), encoding="utf-8")
    return file


def number(text):
    return float(text.replace("−", "-").replace("∞", "inf"))


def calculated(sum):
    """What a calculator gives for a sum as it is printed."""
    for sign, operator in (("=", ""), ("−", "-"), ("×", "*"), ("÷", "/")):
        sum = sum.replace(sign, operator)
    return eval(re.sub(r"e\^(\S+)", r"math.exp(\1)", sum).strip(), {"math": math})


def ready(page, place):
    page.tab.wait_for_selector(f'.columns[data-ready="{place}"]')


def test_the_columns_of_four_steps_are_the_rows_of_the_trace(browser, cat):
    file, trace = cat
    with opened(browser, file, CHOSEN) as page:
        ready(page, f"0.{LAYER}.{HEAD}")
        steps = page.tab.evaluate(READ)
    for name in ("scores", "mask", "scaled", "weights"):
        row = trace[name][0, HEAD, IT].tolist()
        assert list(steps[name]["keys"]) == [str(key) for key in range(10)]
        for key, text in steps[name]["keys"].items():
            value = row[int(key)]
            # Half of the last digit, and what 12 bits of the queries and keys that scores are made of leave open.
            off = 0.051 * (abs(value) >= 10) + 0.00501 + abs(value) / 4000
            assert number(text) == value or abs(number(text) - value) <= off


def test_the_number_in_each_step_is_that_of_the_trace_and_the_sums_hold(browser, cat):
    file, trace = cat
    with opened(browser, file, f"{CHOSEN}17") as page:
        ready(page, f"0.{LAYER}.{HEAD}")
        steps = page.tab.evaluate(READ)
    assert list(steps) == trace.names
    at = HEAD * 32 + 17
    expected = {
        "queries": trace["queries"][0, IT, at],
        "keys": trace["keys"][0, CAT, at],
        "split values": trace["values"][0, CAT, at],
        "transpose": trace["transpose"][0, HEAD, IT, 17],
        "scores": trace["scores"][0, HEAD, IT, CAT],
        "scaled": trace["scaled"][0, HEAD, IT, CAT],
        "weights": trace["weights"][0, HEAD, IT, CAT],
        "context": trace["context"][0, HEAD, IT, 17],
        "concat": trace["concat"][0, IT, at],
    }
    for name, value in expected.items():
        assert number(steps[name]["said"][-1]["number"]) == pytest.approx(float(value), abs=0.00501), name
    sums = [said for step in steps.values() for said in step["said"] if said["sum"] and "more" not in said["sum"]]
    assert len(sums) == 4
    for said in sums:
        digits = len(said["number"].partition(".")[2])
        assert f"{calculated(said['sum']):.{digits}f}" == said["number"].replace("−", "-"), said
    more = steps["scores"]["said"]
    assert more[1]["sum"] == f"{more[0]['number']} + 31 more = "


def test_pointing_at_a_column_chooses_the_key_and_moves_no_word(browser, cat):
    file, trace = cat
    with opened(browser, file, f"view=steps&head={LAYER}.{HEAD}&looks={IT}") as page:
        ready(page, f"0.{LAYER}.{HEAD}")
        assert page.text("h1") == "How does it come to look at The?"
        boxes = "nodes => nodes.map(node => { const { x, y } = node.getBoundingClientRect(); return [x, y]; })"
        words = page.tab.locator(".text .unit, .key-name, .step-name b")
        before = words.evaluate_all(boxes)
        page.tab.locator('[data-step="weights"] .key-cell[data-key="5"]').hover()
        assert page.text("h1") == "How does it come to look at mat?"
        assert page.text(".ask p").endswith(f"weight {trace['weights'][0, HEAD, IT, 5]:.3f}.")  # 0.071
        assert words.evaluate_all(boxes) == before
        page.tab.locator('[data-step="mask"] .key-cell[data-key="9"]').hover()
        assert page.text("h1") == "Why does it not look at tired?"
        assert page.text(".ask p") == "The mask hides it: −∞ becomes weight 0."


def test_the_keyboard_chooses_key_and_number(browser, cat):
    file, _ = cat
    with opened(browser, file, CHOSEN) as page:
        ready(page, f"0.{LAYER}.{HEAD}")
        page.tab.locator(".key-name[data-on]").focus()
        page.tab.keyboard.press("ArrowRight")
        assert page.text("h1") == "How does it come to look at sat?"
        page.tab.keyboard.press("Home")
        assert page.text("h1") == "How does it come to look at The?"
        slider = page.tab.locator("[role=slider]")
        slider.focus()
        followed = int(slider.get_attribute("aria-valuenow"))
        page.tab.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuenow") == str(followed + 1)
        assert slider.get_attribute("aria-valuetext").startswith(f"number {followed + 1}: ")
        page.tab.keyboard.press("Escape")
        assert "step=" not in address_of(page.tab)


def test_a_layer_without_steps_says_how_to_add_them_and_offers_one_that_has_them(browser, cat):
    file, _ = cat
    with opened(browser, file, "view=steps&head=1.1") as page:
        assert "The steps of layer 1 are not in this page. Only layers of regard name their steps" in page.text(".main")
        page.tab.get_by_role("button", name=f"layer {LAYER}").click()
        ready(page, f"0.{LAYER}.1")
        assert page.text(".steps h1, li.step b") == "x"


@pytest.mark.parametrize("rung", range(4))
def test_each_rung_of_the_ladder_shows_its_steps(browser, folder, rung):
    reports = ladder_reports()
    file = write(folder / "ladder.html", reports)
    with opened(browser, file, f"view=steps&report={rung}&looks=1&step=3.") as page:
        ready(page, f"{rung}.0.0")
        steps = page.tab.evaluate(READ)
        assert page.text("h1").endswith("journey come to look at with?") == (rung < 2)  # later rungs hide it
    trace = reports[rung].steps[0]
    assert list(steps) == trace.names
    weight = trace["weights"].reshape(-1, 6, 6)[0, 1, 3].item()
    assert number(steps["weights"]["said"][0]["number"]) == pytest.approx(weight, abs=0.00501)
    assert steps["weights"]["said"][0]["sum"].startswith("e^")


def test_a_layer_of_ones_own_is_shown_as_far_as_its_steps_have_names(browser, folder):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.to_queries, self.to_keys = torch.nn.Linear(11, 5), torch.nn.Linear(11, 5)

        def forward(self, x):
            scores = self.to_queries(x) @ self.to_keys(x).mT
            return (scores * 0.25).softmax(-1) @ x

    layer, x = Own().eval(), torch.randn(1, 7, 11)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(x)
    trace = regard.trace(layer, x)
    file = write(folder / "own.html", [Titled("own", seen, steps={0: trace})])
    with opened(browser, file, "view=steps&looks=3&step=2.") as page:
        ready(page, "0.0.0")
        steps = page.tab.evaluate(READ)
    assert list(steps) == trace.names
    assert steps["to_queries"]["said"] == [{"sum": "", "number": "", "note": ""}]
    assert "×" in steps["scaled"]["said"][0]["sum"]
    assert number(steps["weights"]["said"][0]["number"]) == pytest.approx(trace["weights"][0, 3, 2].item(), abs=0.00501)


@pytest.mark.parametrize("width", [360, 390, 768, 1440, 2560])
def test_nothing_is_wider_than_the_window(browser, cat, width):
    file, _ = cat
    with opened(browser, file, CHOSEN, viewport={"width": width, "height": 900}) as page:
        ready(page, f"0.{LAYER}.{HEAD}")
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
        wide = "parts => parts.map(part => [part.scrollWidth, part.clientWidth])"
        parts = page.tab.locator("li .step-part").evaluate_all(wide)
        assert [(inner, outer) for inner, outer in parts if inner > outer] == []
