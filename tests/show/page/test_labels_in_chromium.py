"""The names of rows and columns, for every kind of model and token, as Chromium shows them."""

import gzip

import pytest
import torch
from chromium import address_of, needs_chromium, opened
from tokenizers import AddedToken, Tokenizer, models

import regard
from heads.models import bert, llama, t5, vit
from regard.gpt.tokenizer.tokenizer import Tokenizer as OurTokenizer
from regard.show.page.encode import Encoding, decode_weights
from regard.show.page.payload import Titled, page_data

pytestmark = [pytest.mark.slow, needs_chromium]

WORDS = ["[pad]", "<s>", "</s>", *(f"w{i}" for i in range(3, 53))]
UNICODE = "猫が座った 👩‍👩‍👧 مرحبا\n\nThe cat"
LINES = """() => ["keys", "queries"].map(side =>
  [...document.querySelectorAll(`.lines .${side} text`)].map(one => one.textContent))"""
READ_CELLS = """() => {
  const grid = document.querySelector(".map-grid"), cell = document.querySelector(".map-cell");
  const [T, S] = ["row", "col"].map(axis => Number(grid.getAttribute(`aria-${axis}count`)));
  const box = grid.getBoundingClientRect(), size = box.width / S, cells = [];
  for (let row = 0; row < T; row++) for (let col = 0; col < S; col++) {
    const at = { clientX: box.left + (col + 0.5) * size, clientY: box.top + (row + 0.5) * size, bubbles: true };
    grid.dispatchEvent(new PointerEvent("pointermove", at));
    cells.push(cell.getAttribute("data-weight"));
  }
  return [T, S, cells];
}"""


@pytest.fixture(scope="module")
def tokenizer():
    one = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<s>"))
    one.add_special_tokens([AddedToken(word, special=True) for word in WORDS[:3]])
    return one


def words(ids):
    return [WORDS[i] for i in ids]


def written(seen, folder):
    path = folder / "page.html"
    seen.to_html(path, title="a model")
    return path


@pytest.fixture(scope="module")
def of_llama(tokenizer, tmp_path_factory):
    """Four heads, two key heads."""
    model = llama()
    with torch.no_grad(), regard.watch(model, tokenizer=tokenizer) as seen:
        model(torch.arange(3, 10)[None])
    return written(seen, tmp_path_factory.mktemp("llama")), seen


@pytest.fixture(scope="module")
def of_t5(tokenizer, tmp_path_factory):
    """Layers 0 and 1: encoder, 2 and 4: decoder, 3 and 5: from decoder to encoder."""
    model = t5()
    with torch.no_grad(), regard.watch(model, tokenizer=tokenizer) as seen:
        model(input_ids=torch.arange(3, 10)[None], decoder_input_ids=torch.arange(20, 25)[None])
    return written(seen, tmp_path_factory.mktemp("t5")), seen


@pytest.fixture(scope="module")
def of_vit(tmp_path_factory):
    model = vit()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(1, 3, 12, 12))
    return written(seen, tmp_path_factory.mktemp("vit")), seen


def captions(page):
    return dict(
        page.tab.locator(".heads .one").evaluate_all(
            "all => all.map(one => [one.querySelector('.id').textContent, one.querySelector('.to').textContent])"
        )
    )


def test_heads_that_share_a_key_head_stand_together_and_are_named(browser, of_llama):
    with opened(browser, of_llama[0], "view=heads") as page:
        titles = page.tab.locator(".head-titles .group").all_text_contents()
        assert titles == ["heads 0–1 share key head 0", "heads 2–3 share key head 1"] * 2
        heads = {
            one["id"]: one
            for one in page.tab.locator(".heads .one").evaluate_all(
                "all => all.map(one => "
                "({id: one.querySelector('.id').textContent, x: one.offsetLeft, y: one.offsetTop}))"
            )
        }
        lines = page.tab.locator(".head-titles .group").evaluate_all(
            "all => all.map(one => [one.offsetLeft, one.offsetLeft + one.offsetWidth, one.offsetTop])"
        )
        for number, (left, right, top) in enumerate(lines):
            layer, first = number // 2, 2 * (number % 2)
            for head in (first, first + 1):
                one = heads[f"{layer}.{head}"]
                assert left <= one["x"] < right
                assert 0 < one["y"] - top < 40
        page.tab.locator(".strip", has_text="entropy").click()
        assert page.tab.locator(".head-titles p").count() == 0
        order = page.tab.locator(".heads .one .id").all_text_contents()
        entropies = {f"{at[0]}.{at[1]}": of_llama[1][at].summary["entropy"] for at in of_llama[1].order()}
        assert order == sorted(entropies, key=entropies.get, reverse=True)
        values = page.tab.locator(".heads .one .value").all_text_contents()
        assert values == [f"{entropies[one]:.2f}" for one in order]
        role = of_llama[1][0, 0].role.name
        page.tab.locator(".roles button", has_text=role).click()
        same = sum(of_llama[1][at].role.name == role for at in of_llama[1].order())
        assert page.tab.locator(".heads .one:not([data-dim])").count() == same
    with opened(browser, of_llama[0], "head=1.3") as page:
        assert "Heads 2–3 share key head 1." in page.text(".role")


def test_a_pinned_word_is_bright_in_the_heads_where_it_looks_somewhere_clearly(browser, of_llama):
    file, seen = of_llama
    with opened(browser, file, "view=heads&looks=5") as page:
        looks = dict(
            page.tab.locator(".heads .one").evaluate_all(
                "all => all.map(one => [one.querySelector('.id').textContent, one.getAttribute('data-looks')])"
            )
        )
    for layer, head in seen.order():
        weight = seen[layer, head].weights(rows=5)[0, 0].max()
        assert looks[f"{layer}.{head}"] == str(int((weight * 4).ceil()))


def test_each_layer_of_an_encoder_and_a_decoder_has_its_own_tokens(browser, of_t5):
    encoder, decoder = words(range(3, 10)), words(range(20, 25))
    with opened(browser, of_t5[0], "head=0.0") as page:
        for layer, (keys, queries) in enumerate(
            [(encoder, encoder), (encoder, encoder), (decoder, decoder), (encoder, decoder), (decoder, decoder)]
        ):
            page.tab.locator(".find").fill(f"{layer}.1")
            page.tab.keyboard.press("Enter")
            page.ready(f"{layer}.1")
            assert page.tab.evaluate(LINES) == [keys, queries]
            text, other = (page.tab.locator(".reads").nth(i) for i in (0, 1))
            assert text.locator(".unit").all_text_contents() == queries
            assert other.is_visible() == (keys != queries)
            if keys != queries:
                assert other.locator(".unit").all_text_contents() == keys
                assert [one.locator(".side-name").inner_text() for one in (text, other)] == ["looks", "is looked at"]


def test_the_text_that_is_looked_at_is_shaded_and_not_the_one_that_looks(browser, of_t5):
    file, seen = of_t5
    with opened(browser, file, "head=3.2&looks=4") as page:
        shaded = [
            one.locator(".unit").evaluate_all("all => all.map(unit => Boolean(unit.style.background))")
            for one in (page.tab.locator(".reads").nth(0), page.tab.locator(".reads").nth(1))
        ]
    assert shaded == [[False] * 5, (seen[3, 2].weights(rows=4)[0, 0] >= 0.01).tolist()]


def test_a_pin_belongs_to_its_text(browser, of_t5):
    with opened(browser, of_t5[0], "head=0.0") as page:
        page.tab.locator(".text .unit", has_text="w6").click()
        page.tab.mouse.move(5, 5)
        assert page.text("h1") == "Where does w6 look?"
        for head, question, more in (
            ("1.2", "Where does w6 look?", False),
            ("2.1", None, True),  # the decoder does not read it
            ("3.1", "Who looks at w6?", False),  # a key of cross-attention
            ("1.0", "Where does w6 look?", False),
        ):
            page.tab.locator(".find").fill(head)
            page.tab.keyboard.press("Enter")
            page.ready(head)
            for _ in range(2):
                assert question is None or page.text("h1") == question
                assert ("w6 is pinned; this layer does not read it." in page.text(".ask p")) == more
                page.tab.reload()
                page.ready(head)
        page.tab.locator(".find").focus()
        page.tab.keyboard.press("Escape")
        page.tab.keyboard.press("Escape")
        assert "looks" not in address_of(page.tab)
        assert "text" not in address_of(page.tab)


def test_a_word_is_followed_into_the_heads_that_read_it(browser, of_t5):
    file, seen = of_t5
    with opened(browser, file, "view=heads&head=3.0&receives=2&text=0") as page:
        assert page.text("h1") == "Where does w5 look, in the 8 heads that read it?"
        shown = captions(page)
        titles = page.tab.locator(".head-titles .layer").all_text_contents()
    for layer, head in seen.order():
        if layer > 1:
            assert shown[f"{layer}.{head}"] == "–"
            continue
        weight, key = seen[layer, head].weights(rows=2)[0, 0].max(-1)
        assert shown[f"{layer}.{head}"] == f"w{3 + int(key)} {float(weight):.2f}"
    assert titles[0] == "0 · encoder.block.0.layer.0.SelfAttention: 7 tokens"
    assert titles[3] == "3 · decoder.block.0.layer.1.EncDecAttention: 5 tokens look at 7 of another text"


def test_find_goes_to_a_word_that_is_only_looked_at(browser, of_t5):
    with opened(browser, of_t5[0], "head=5.3") as page:
        for word, question in (("w7", "Who looks at w7?"), ("w22", "Where does w22 look?")):
            page.tab.locator(".find").fill(word)
            page.tab.keyboard.press("Enter")
            assert page.text("h1") == question


@pytest.mark.parametrize("model", [bert, llama])
def test_left_padding_is_marked_and_not_counted(browser, model, tokenizer, tmp_path):
    ids = torch.tensor([[0, 0, 0, 5, 6], [11, 12, 13, 14, 15]])
    one = model()
    with torch.no_grad(), regard.watch(one, tokenizer=tokenizer) as seen:
        one(ids, attention_mask=(ids > 0).long())
        one(ids[:1, 3:], attention_mask=torch.ones(1, 2, dtype=torch.long))
    padded, alone = seen.forwards
    file = written(padded, tmp_path)
    with opened(browser, file, "head=0.0") as page:
        assert page.tab.evaluate(LINES) == [["[pad]", "[pad]", "[pad]", "w5", "w6"]] * 2
        assert page.tab.locator(".text .unit").all_text_contents() == ["[pad]", "[pad]", "[pad]", "w5", "w6"]
        assert "5 tokens, 3 of them padding" in page.text(".meta")
        T, S, cells = page.tab.evaluate(READ_CELLS)
        seen_cells = torch.tensor([value != "NaN" for value in cells]).view(T, S)
        assert not seen_cells[:3].any()
        assert not seen_cells[:, :3].any()
        page.tab.locator(".text .unit").nth(1).click()
        assert page.text("h1") == "Where does [pad]@1 look?"
        assert page.text(".ask p") == "Nowhere: it is padding, and is not counted."
        page.tab.locator(".find").fill("[pad]")
        page.tab.keyboard.press("Enter")
        assert page.text(".live") == "There is no word [pad]."
    if model is bert:  # its learned positions begin before the padding: the weights differ, what is counted does not
        return
    for at in alone.order():
        torch.testing.assert_close(padded[at].weights()[0, 3:, 3:], alone[at].weights()[0], atol=1e-5, rtol=0)


def test_generated_tokens_are_queries_one_by_one(browser, tokenizer, tmp_path):
    model = llama()
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with torch.no_grad(), regard.watch(model, tokenizer=tokenizer) as seen:
        ids = model.generate(torch.arange(3, 8)[None], max_new_tokens=7, **options)[0].tolist()
    looked = words(ids[:-1])  # the last token was chosen, and looked at nothing
    with opened(browser, written(seen, tmp_path), "head=1.1") as page:
        assert page.tab.evaluate(LINES) == [looked, looked]
        T, S, cells = page.tab.evaluate(READ_CELLS)
    assert (T, S) == (11, 11)
    read = torch.tensor([float(value) for value in cells]).view(T, S)
    exact = seen[1, 1].weights()[0].masked_fill(torch.ones(T, S).triu(1).bool(), torch.nan)
    torch.testing.assert_close(read, exact, atol=1e-5, rtol=0, equal_nan=True)


def test_a_vision_model_has_positions(browser, of_vit):
    numbers = [str(i) for i in range(10)]
    with opened(browser, of_vit[0], "head=1.2&looks=7") as page:
        assert page.tab.evaluate(LINES) == [numbers, numbers]
        assert page.text("h1") == "Where does position 7 look?"
        assert page.text(".ask p").startswith("At position ")
        assert page.text(".live").startswith("position 7 → position ")
        assert "10 positions" in page.text(".meta")
        assert page.tab.locator(".reading").is_hidden()
        page.tab.locator(".find").fill("position 3")
        page.tab.keyboard.press("Enter")
        assert page.text("h1") == "Where does position 3 look?"
    for view in ("heads", "compare"):
        with opened(browser, of_vit[0], f"view={view}&looks=7") as page:
            assert "position 7" in page.text("#regard")


def ours():
    return regard.GPT.from_pretrained("tiny").tokenizer


def of_bytes():
    return OurTokenizer.train(["The cat sat on the mat"] * 3, vocab_size=264)


@pytest.mark.parametrize("make", [ours, of_bytes])
def test_bytes_of_a_character_are_shown_as_such(browser, make, tmp_path):
    tokenizer, model = make(), regard.GPT.from_pretrained("tiny")
    ids = tokenizer.encode(UNICODE)
    with torch.no_grad(), regard.watch(model, tokenizer=tokenizer) as seen:
        model(torch.tensor([ids]))
    file, tokens = written(seen, tmp_path), seen[0].query_tokens[0]
    with opened(browser, file, "head=4.3&looks=1") as page:
        assert page.text("h1") == "Where does byte 2 of 3 of 猫 look?"
        assert page.tab.locator(".text .unit").nth(1).get_attribute("title") == "byte 2 of 3 of 猫"
        keys, queries = page.tab.evaluate(LINES)
        assert [name.replace("\u200e", "") for name in keys] == [name.removeprefix("##") for name in tokens.names]
        assert keys == queries
        page.tab.get_by_role("button", name="words", exact=True).click()
        page.tab.wait_for_selector('[data-words="true"][aria-pressed="true"]')
        units = page.tab.locator(".text .unit").all_text_contents()
        assert units[:5] == list("猫が座った")
        assert units[6] == "👩‍👩‍👧"
        assert units[8] == "مرحبا"
        assert page.text("h1") == "Where does 猫 look?"
        page.tab.keyboard.press("Escape")
        T, S, by_word = page.tab.evaluate(READ_CELLS)
        assert "\ufffd" not in page.tab.evaluate("document.getElementById('regard').outerHTML")
    data = page_data([Titled("", seen)])
    stored = gzip.decompress(data.blocks["weights.0.4.3"])
    by_token = torch.from_numpy(
        decode_weights(stored, len(ids), len(ids), Encoding("linear16", triangle=True))
    ).nan_to_num()
    member = torch.nn.functional.one_hot(torch.tensor(tokens.words)).double()
    wanted = member.T @ by_token @ member / member.sum(0)[:, None]
    read = torch.tensor([float(value) for value in by_word], dtype=torch.float64).view(T, S).nan_to_num()
    torch.testing.assert_close(read, wanted, atol=1e-6, rtol=0)
    for view in ("heads", "compare", "steps"):
        with opened(browser, file, f"view={view}&head=4.3&looks=17") as page:
            assert "\ufffd" not in page.tab.evaluate("document.getElementById('regard').outerHTML")
