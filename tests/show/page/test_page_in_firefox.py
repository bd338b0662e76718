"""Every view of a page in Firefox: it opens, answers, stays inside of the window and follows the keyboard and Back."""

import pytest
import torch
from firefox import firefox, needs_firefox

import regard
from regard.show.page.write import titled_texts, write_page
from regard.traces.trace import trace_layers

pytestmark = [pytest.mark.slow, needs_firefox]

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with firefox(tmp_path_factory.mktemp("firefox")) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of 37 tokens with the steps of a layer, beside the same text without head 0.2; and its first report."""
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(ALICE)])
    with torch.no_grad(), regard.watch(model, tokenizer=model.tokenizer, keep=True) as seen:
        model(ids)
    with (
        torch.no_grad(),
        regard.cut(model, [(0, 2)]),
        regard.watch(model, tokenizer=model.tokenizer, keep=True) as without,
    ):
        model(ids)
    path = tmp_path_factory.mktemp("pages") / "page.html"
    steps = trace_layers(model, {"ids": ids}, [4])
    write_page(path, titled_texts(seen, "uncut", steps) + titled_texts(without, "without 0.2"))
    return path, seen


def text(browser, selector):
    return " ".join(browser.run(f"document.querySelector({selector!r}).innerText").split())


@pytest.mark.parametrize("width", [500, 1024, 1440])  # its windows are no narrower than 500
def test_every_view_answers_a_question_and_fits_into_the_window(browser, page, width):
    browser.size(width, 900)
    for view in ("heads", "head", "layer", "flow", "steps", "compare", "long"):
        browser.open(f"{page[0].as_uri()}#view={view}&head=4.3")
        assert text(browser, "h1").endswith("?")
        assert any(one.isdigit() for one in text(browser, ".ask p"))
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_the_weights_are_those_of_the_report(browser, page):
    file, seen = page
    browser.size(1440, 900)
    browser.open(f"{file.as_uri()}#view=head&head=4.3&looks=25")
    assert text(browser, ".ask p").startswith("At tired@7 0.94")
    for row, col in ((25, 7), (30, 0), (36, 36)):
        browser.run(f"""(() => {{
          const grid = document.querySelector(".map-grid"), box = grid.getBoundingClientRect(), size = box.width / 37;
          const at = {{ clientX: box.left + ({col} + 0.5) * size, clientY: box.top + ({row} + 0.5) * size }};
          document.querySelector(".unit[data-state~=pinned]")?.click();
          grid.dispatchEvent(new PointerEvent("pointermove", {{ ...at, bubbles: true }}));
        }})()""")
        weight = float(browser.run("document.querySelector('.map-cell').dataset.weight"))
        assert weight == pytest.approx(float(seen[4, 3].weights(row, col)), abs=1e-5)


def test_the_other_run_keeps_the_pin_and_back_returns(browser, page):
    browser.open(f"{page[0].as_uri()}#view=head&head=4.3&looks=25")
    question = text(browser, "h1")
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText === 'other run').click()")
    browser.wait("document.querySelector('.meta').innerText.startsWith('without 0.2')")
    assert text(browser, "h1") == question
    browser.run("history.back()")
    browser.wait("document.querySelector('.meta').innerText.startsWith('uncut')")


def test_a_page_is_laid_out_for_paper_and_back(browser, page):
    browser.open(f"{page[0].as_uri()}#view=head&head=4.3&theme=dark")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.getElementById('regard').dataset.theme") == "light"
    assert browser.run("document.getElementById('regard').getBoundingClientRect().height") <= 700
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.getElementById('regard').dataset.theme") == "dark"
    assert browser.picture()[:4] == b"\x89PNG"
