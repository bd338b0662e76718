"""The engine and the tokenizer of the page against Python at length: 200 texts, 20 prompts, 10,000 strings."""

import random
import unicodedata
from pathlib import Path

import pytest
import torch
from node import WITHIN, Node, needs_node

import regard
from regard.gpt.tokenizer.portable import portable_tokenizer
from regard.show.page.live import describe_measures

pytestmark = [needs_node, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
TEXTS, PROMPTS, WRITTEN, STRINGS = 200, 20, 200, 10_000
ODD = "👩‍👩‍👧🐈\u200d⬛🇩🇪é\u0301ﬁſ½①\u00a0\u2003\ufeff\u200b\u0085\x00\x07\x1bمرحبا بالعالم שלום 猫が座った नमस्ते สวัสดี\ufffd"


@pytest.fixture(scope="module")
def node():
    node = Node()
    with node.process:
        yield node


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


def sources():
    """Prose and code: the documentation, the lessons and the library itself."""
    paths = [*ROOT.glob("docs/*.md"), *ROOT.glob("src/regard/school/lessons/*/words.md")]
    paths += sorted(ROOT.glob("src/regard/gpt/*.py")) + sorted(ROOT.glob("src/regard/show/page/js/*/*.js"))
    return [path.read_text(encoding="utf-8") for path in sorted(paths)]


def passages(count, longest, seed):
    """Parts of the sources: from anywhere, of any length; every third is said twice."""
    chance, texts = random.Random(seed), sources()
    found = []
    for number in range(count):
        text = chance.choice(texts)
        start = chance.randrange(max(1, len(text) - longest))
        part = text[start : start + chance.randint(2, longest)]
        found.append(f"{part} {part}" if number % 3 == 0 else part)
    return found


def test_every_weight_statistic_and_role_of_200_texts_is_that_of_python(node, model, tmp_path):
    node.load(model, tmp_path, True)
    measures, file, texts = describe_measures(), tmp_path / "weights", passages(TEXTS, 150, 31)
    for text in texts:
        ids = model.tokenizer.encode(text)
        with torch.no_grad(), regard.watch(model, collect=("default", "induction", "duplicate")) as seen:
            logits = model(torch.tensor([ids]))[0, -1]
        answer = node.ask("read", parts=[ids], file=str(file))
        lower = torch.ones(len(ids), len(ids)).tril().bool()
        expected = torch.cat([layer.weights()[0][:, lower].flatten() for layer in seen])
        got = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float32)
        torch.testing.assert_close(got, expected, atol=WITHIN, rtol=0, msg=lambda m, t=text: f"{t!r}: {m}")
        torch.testing.assert_close(torch.tensor(answer["logits"]), logits, atol=10 * WITHIN, rtol=1e-5)
        for (place, portrait), head in zip(
            seen.portraits().items(), node.ask("measure", ids=ids, measures=measures), strict=True
        ):
            known = {name: mean for name, mean in portrait.means.items() if mean == mean}
            assert head["means"] == pytest.approx(known, abs=1e-4), (text, place)
            assert head["role"]["name"] == portrait.role.name, (text, place)


@pytest.mark.parametrize("wasm", [False, True], ids=["plain", "wasm"])
def test_200_greedy_tokens_after_20_prompts_are_those_of_python(wasm, node, model, tmp_path):
    node.load(model, tmp_path, wasm)
    for prompt in passages(PROMPTS, 90, 7):
        ids = model.tokenizer.encode(prompt)
        expected = model.generate(ids, max_new_tokens=WRITTEN, temperature=0)
        written = node.ask("write", ids=ids, count=WRITTEN)
        assert written[: len(expected)] == expected, prompt
        assert len(expected) == WRITTEN or written[len(expected)] in model.config.ends  # a text may end before


def test_10_000_strings_are_the_tokens_of_python(node, model):
    chance = random.Random(11)
    odd = ["".join(chance.choices(ODD, k=chance.randint(1, 19))) for _ in range(1500)]
    mixed = [a[: chance.randint(1, 20)] + b for a, b in zip(odd, passages(1500, 60, 5), strict=True)]
    pairs = [
        bytes([a, b, *chance.choices(range(256), k=5)]).decode(errors="replace") for a in range(256) for b in (3, 200)
    ]
    codes = [
        "".join(chr(c) for c in chance.choices(range(0x30000), k=9) if unicodedata.ucd_3_2_0.category(chr(c)) != "Cn")
        for _ in range(1000)
    ]
    halves = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in codes]
    texts = [*odd, *mixed, *pairs, *halves]
    texts += passages(STRINGS - len(texts), 200, 3)
    assert len(texts) == STRINGS
    node.ask("tokenizer", tables=portable_tokenizer(model.tokenizer))
    for start in range(0, STRINGS, 500):
        part = texts[start : start + 500]
        for text, expected, got in zip(
            part, model.tokenizer.encode_batch(part), node.ask("encode", texts=part), strict=True
        ):
            assert got == expected, repr(text)
