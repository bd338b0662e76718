"""A page that runs its model, in Firefox from a file: what is typed and cut is what Python computes."""

import pytest
from firefox import firefox, needs_firefox

import regard
from regard.show.page.live import live_page

pytestmark = [pytest.mark.slow, needs_firefox]
TYPE = """((text) => {
  const box = document.querySelector(".live textarea");
  box.value = text;
  box.dispatchEvent(new InputEvent("input"));
})(%r)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with firefox(tmp_path_factory.mktemp("firefox")) as one:
        yield one


def text(browser, selector):
    return " ".join(browser.run(f"document.querySelector({selector!r}).innerText").split())


def test_a_text_is_typed_a_head_is_cut_and_the_model_writes_on(browser, tmp_path):
    path = tmp_path / "live.html"
    path.write_text(live_page(regard.GPT.from_pretrained("tiny"), "tiny").html(), encoding="utf-8")
    browser.size(1440, 900)
    browser.open(path.as_uri())
    assert browser.run("document.querySelector('.tour').hidden") is False
    browser.run("[...document.querySelectorAll('.tour button')].at(-1).click()")
    browser.open(f"{path.as_uri()}?cut=0.2")
    assert text(browser, ".ask p").startswith("Head 4.3: induction 0.80 → 0.38 on average.")
    assert text(browser, ".next-tokens .num") == "0.99→0.03"
    browser.open(f"{path.as_uri()}#view=head&head=4.3")
    browser.run(TYPE % "Alice saw the cat, and the cat saw Alice")
    browser.wait("document.querySelector('.meta').textContent.includes('· 12 tokens')")
    assert browser.run("location.search") == "?text=Alice+saw+the+cat%2C+and+the+cat+saw+Alice"
    browser.run("document.querySelector('.write').click()")
    browser.wait("document.querySelector('.meta').textContent.includes('· 76 tokens')")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
