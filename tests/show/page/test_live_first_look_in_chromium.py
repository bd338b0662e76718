"""What somebody missed who saw the live page for the first time."""

import re

import pytest
import torch
from chromium import OpenPage, address_of, needs_chromium

import regard
from regard.show.page.live import EXAMPLES, live_page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "live.html"
    path.write_text(live_page(model, "tiny").html(), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    page = OpenPage(browser, f"{file.as_uri()}#view=head&head=4.3")
    yield page
    page.context.close()


def typed(page, text, tokens):
    page.tab.get_by_role("textbox", name="text", exact=True).fill(text)
    page.tab.get_by_text(re.compile(rf"· {tokens} tokens")).wait_for()
    page.ready()


def test_what_a_cut_costs_most_is_said_wherever_it_is_in_the_text(browser, file, model):
    """At the end of this text, 4.3 changes nothing: 0.99 → 0.99."""
    ids = torch.tensor([model.tokenizer.encode(next(iter(EXAMPLES.values())))])
    with torch.no_grad():
        chances = [model(ids)[0].softmax(-1)]
        with regard.cut(model, [(4, 3)]):
            chances.append(model(ids)[0].softmax(-1))
    uncut, without = (one[:-1].gather(1, ids[0, 1:, None])[:, 0] for one in chances)
    at = int((uncut - without).argmax())
    token, before = (model.tokenizer.decode([int(ids[0, i])]).strip() for i in (at + 1, at))
    page = OpenPage(browser, f"{file.as_uri()}?cut=4.3#view=head&head=4.3")
    shares = f"{uncut[at]:.2f} → {without[at]:.2f}"
    expected = f"Without 4.3, “{token}” after “{before}@{at}” is less likely: {shares} end the text there"
    assert page.text(".lost") == expected
    page.tab.get_by_role("button", name="end the text there").click()
    page.tab.get_by_text(re.compile(rf"· {at + 1} tokens")).wait_for()
    page.ready()
    assert page.tab.locator(".next-tokens .num").first.inner_text() == f"{uncut[at]:.2f}→{without[at]:.2f}"
    page.close()


def test_the_run_and_the_view_stay_while_somebody_types(opened, model):
    opened.open(f"{address_of(opened.tab).split('#')[0]}?cut=4.3#view=head&head=4.3")
    opened.tab.locator(".runs").get_by_role("button", name="without 4.3").click()
    typed(opened, "Alice saw the cat", len(model.tokenizer.encode("Alice saw the cat")))
    assert opened.tab.locator(".runs [aria-current=true]").inner_text() == "without 4.3"
    opened.open(f"{address_of(opened.tab).split('?')[0]}#head=4.3")  # no view: that of a short text, Head
    text = 12 * "Alice saw the cat. "
    tokens = len(model.tokenizer.encode(text))
    typed(opened, text, tokens)
    assert tokens > 64  # a page that is opened with it begins with Long
    assert opened.tab.locator("#regard").get_attribute("data-view") == "head"
    assert opened.messages == []


def test_a_space_before_a_token_is_seen(opened, model):
    kinds = set()
    for text in ("The cat sat on the m", "The cat sat on"):
        ids = model.tokenizer.encode(text)
        typed(opened, text, len(ids))
        with torch.no_grad():
            best = model(torch.tensor([ids]))[0, -1].topk(10).indices.tolist()
        tokens = [model.tokenizer.decode([one]) for one in best]
        shown = opened.tab.locator(".next-tokens b").all_inner_texts()
        words = [(token, one) for token, one in zip(tokens, shown, strict=True) if token.strip().isalpha()]
        assert [one for _, one in words] == [token.replace(" ", "␣") for token, _ in words]
        kinds |= {token[0] == " " for token, _ in words}
    assert kinds == {True, False}
    assert opened.messages == []


def test_stop_stays_where_it_is_while_the_model_writes_slowly(opened, model):
    button = opened.tab.locator(".write")
    typed(opened, "The cat sat on the mat", len(model.tokenizer.encode("The cat sat on the mat")))
    places = [button.bounding_box()]
    button.click()
    opened.tab.wait_for_function("() => document.querySelector('.live textarea').value.length > 60")
    places.append(button.bounding_box())
    assert button.inner_text() == "stop"
    button.click()
    opened.tab.get_by_role("button", name="write on", exact=True).wait_for()
    assert {one["y"] for one in places} == {places[0]["y"]}
    assert opened.messages == []


def test_a_text_that_takes_the_place_of_another_is_shown_as_where_the_page_opens_with_it(browser, opened, model):
    """The page keeps what it can: nothing of the text before may be left."""
    for view, text in (("head", "The cat sat, the cat"), ("heads", "Tom saw Tom"), ("layer", "xq zor, xq zor blim")):
        opened.tab.evaluate(f"location.hash = 'view={view}&head=4.3'")
        typed(opened, text, len(model.tokenizer.encode(text)))
        fresh = OpenPage(browser, address_of(opened.tab))
        expected = fresh.tab.locator("#regard").inner_text()
        opened.tab.wait_for_function("text => document.querySelector('#regard').innerText === text", arg=expected)
        picture = "[...document.querySelectorAll('#regard canvas')].map((one) => one.toDataURL())"
        assert opened.tab.evaluate(picture) == fresh.tab.evaluate(picture), view
        fresh.close()
    assert opened.messages == []
