"""What a page holds of a report: names, roles, means, and the exact weights in blocks."""

import gzip
import json

import numpy as np
import pytest
import torch

import regard
from regard.show.page.encode import Encoding, decode_weights
from regard.show.page.opening import order_of_heads
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

SENTENCE = "The cat sat on the mat, and the cat slept."


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


@pytest.fixture(scope="module")
def watched(model):
    ids = model.tokenizer.encode(SENTENCE)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([ids]))
    return seen, TextTokens(model.tokenizer.pieces(ids))


def test_the_document_names_every_layer_head_and_token(watched):
    seen, tokens = watched
    document = page_data([Titled("tiny", seen, tokens=tokens)]).document
    json.dumps(document, allow_nan=False)
    report = document["reports"][0]
    assert [layer["name"] for layer in report["layers"]] == seen.layers
    assert report["sequences"][0]["pieces"] == list(tokens)
    assert report["sequences"][0]["words"] == tokens.words
    assert report["order"] == [list(place) for place in order_of_heads(seen)]
    for number, layer in enumerate(report["layers"]):
        for head, one in enumerate(layer["heads"]):
            assert one["role"] == seen[number, head].role.name
            assert one["means"]["entropy"] == pytest.approx(seen[number, head].summary["entropy"], abs=1e-6)


def test_the_blocks_hold_the_exact_weights(watched):
    seen, tokens = watched
    data = page_data([Titled("tiny", seen, tokens=tokens)])
    T = len(tokens)
    cells = np.tril(np.ones((T, T), bool))
    for layer, head in seen.order():
        content = np.frombuffer(gzip.decompress(data.blocks[f"weights.0.{layer}.{head}"]), np.uint8).astype(int)
        high, low = np.split(content, 2)
        wanted = seen[layer, head].weights()[0].numpy()
        np.testing.assert_allclose((high * 256 + low) / 65534, wanted[cells], atol=1e-5)


def test_a_page_over_its_budget_takes_the_smaller_encoding_and_says_so(watched):
    seen, tokens = watched
    exact = page_data([Titled("tiny", seen, tokens=tokens)])
    small = page_data([Titled("tiny", seen, tokens=tokens)], budget=1000)
    assert exact.document["reports"][0]["precision"] == "weights ±0.00001"
    assert "the 8 largest of each row ±0.00001" in small.document["reports"][0]["precision"]
    assert {layer["encoding"]["kind"] for layer in small.document["reports"][0]["layers"]} == {"root7"}


def test_a_page_takes_the_finest_codes_that_fit_its_budget():
    torch.manual_seed(3)
    layer = regard.MultiHeadAttention(64, 64, context_length=None, dropout=0.0, num_heads=2, causal=False)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 211, 64))
    budget, found = 10**6, []
    for _ in range(4):
        data = page_data([Titled("layer", seen)], budget)
        encoding = data.document["reports"][0]["layers"][0]["encoding"]
        found.append((encoding["kind"], encoding["coarse"]))
        size = sum(map(len, data.blocks.values()))
        assert size <= budget
        budget = size - 1
    assert found == [("linear16", 0), ("linear16", 4), ("root7", 5), ("root7", 6)]


@pytest.mark.parametrize("heads", [3, 8, 12])
def test_what_fits_is_stored_exactly_also_where_the_first_head_of_each_layer_is_the_largest(heads):
    layers = [regard.MultiHeadAttention(heads, heads, None, 0.0, heads) for _ in range(7)]
    with torch.no_grad():
        for layer in layers:
            layer.W_query.weight[1:] = 0  # all heads but the first see everything alike, which is small when compressed
    model = torch.nn.Sequential(*layers)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(1, 61, heads) * 9)
    size = sum(map(len, page_data([Titled("", seen)]).blocks.values()))
    data = page_data([Titled("", seen)], budget=size)
    below = page_data([Titled("", seen)], budget=size - 1)
    stored = [
        {(layer["encoding"]["kind"], layer["encoding"]["coarse"]) for layer in page.document["reports"][0]["layers"]}
        for page in (data, below)
    ]
    assert stored == [{("linear16", 0)}, {("linear16", 4)}]


def test_many_weights_are_stored_to_four_decimals_and_the_page_says_so(watched, monkeypatch):
    seen, tokens = watched
    monkeypatch.setattr("regard.show.page.payload.FINE", 1000)
    data = page_data([Titled("tiny", seen, tokens=tokens)])
    report = data.document["reports"][0]
    assert report["precision"] == "weights ±0.0001"
    encoding = Encoding(**report["layers"][1]["encoding"])
    T = len(tokens)
    read = decode_weights(gzip.decompress(data.blocks["weights.0.1.3"]), T, T, encoding)
    wanted = seen[1, 3].weights()[0].numpy()
    np.testing.assert_allclose(np.nan_to_num(read), wanted, rtol=0, atol=1.3e-4)


def test_no_head_is_missing_in_a_page_over_its_budget(watched):
    seen, tokens = watched
    exact, small = (page_data([Titled("tiny", seen, tokens=tokens)], budget).blocks for budget in (10**6, 1000))
    assert small.keys() == exact.keys()


def test_thumbnails_of_small_maps_are_the_maps(watched):
    seen, tokens = watched
    data = page_data([Titled("tiny", seen, tokens=tokens)], thumbnails=True)
    T = len(tokens)
    assert data.document["reports"][0]["thumbnails"] == {"rows": T, "cols": T}
    codes = np.frombuffer(gzip.decompress(data.blocks["thumbnails.0"]), np.uint8).reshape(len(seen), -1, T, T)
    visible = np.tril(np.ones((T, T), bool))
    assert np.array_equal(codes == 255, np.broadcast_to(~visible, codes.shape))
    wanted = np.stack([layer.weights()[0].numpy() for layer in seen])
    np.testing.assert_allclose(np.where(visible, (codes / 254) ** 2, 0), wanted, atol=0.004)


def test_long_texts_bring_small_pictures(model):
    ids = torch.randint(300, 900, (1, 71), generator=torch.Generator().manual_seed(3))
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    data = page_data([Titled("random", seen)])
    assert data.document["reports"][0]["thumbnails"] == {"rows": 64, "cols": 64}
    assert len(gzip.decompress(data.blocks["thumbnails.0"])) == 48 * 64 * 64
    assert len(data.document["reports"][0]["sequences"][0]["pieces"]) == 71


def test_a_mask_with_padding_hides_its_rows_and_columns():
    layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=None, dropout=0.0, num_heads=3, causal=False)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(2, 7, 12), mask=torch.tensor([7, 4]))
    document = page_data([Titled("padded", seen, text=1)])
    content = np.frombuffer(gzip.decompress(document.blocks["weights.0.0.0"]), np.uint8).astype(int)
    hidden = (content[:49] * 256 + content[49:] == 65535).reshape(7, 7)
    assert hidden[:4, 4:].all()
    assert not hidden[:4, :4].any()


def test_padding_bytes_and_halves_of_characters_are_in_the_document():
    layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=None, dropout=0.0, num_heads=3)
    tokens = TextTokens(
        ["<p>", "猫", "", "\udc8c"], padding=[True, False, False, False], parts={1: "猫:1", 2: "猫:2-3"}
    )
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 4, 12))
    report = page_data([Titled("\ud83d", seen, tokens=tokens)]).document["reports"][0]
    assert report["title"] == r"\ud83d"
    assert report["sequences"] == [
        {
            "pieces": ["<p>", "猫", "", r"\udc8c"],
            "names": {"0": "[pad]", "1": "猫:1", "2": "猫:2-3"},
            "bytes": {"1": "byte 1 of 3 of 猫", "2": "bytes 2-3 of 3 of 猫"},
            "padding": [0],
            "words": [0, 1, 2, 3],
        }
    ]


def test_cross_attention_is_marked():
    layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=None, dropout=0.0, num_heads=3, causal=False)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 5, 12), torch.randn(1, 7, 12))
        layer(torch.randn(1, 5, 12))
    across = [page_data([Titled("", one)]).document["reports"][0]["layers"][0]["across"] for one in seen.forwards]
    assert across == [True, False]
