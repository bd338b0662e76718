"""The page of an atlas: what is in its document and blocks, and that nothing of a corpus gets out of them."""

import base64
import gzip
import json
import re

import pytest
import torch

import regard
from heads.atlas.corpora import LAYERS, H, Letters, corpus, small_model
from regard.heads.atlas.examples import ExampleRow, ExcerptToken
from regard.heads.atlas.result import Atlas
from regard.heads.measure.registry import AVERAGED
from regard.show.page.atlas_page import atlas_page, describe_atlas, describe_heads, describe_words, word_at

HOSTILE = ["§", "</script><script>alert(1)</script>", "<!--", "\u2028", "<img src=x onerror=alert(1)>", " cat", "s"]


class HostileTokens(Letters):
    """A tokenizer of tokens that would leave their element."""

    characters = (*HOSTILE, *"abcdefghijklmnopqrstuvwxy")


@pytest.fixture(scope="module")
def atlas():
    return regard.atlas(small_model(), corpus(), tokenizer=HostileTokens())


@pytest.fixture(scope="module")
def page(atlas, tmp_path_factory):
    path = tmp_path_factory.mktemp("atlas") / "atlas.html"
    atlas.to_html(path, title="</title><script>")
    return path.read_text(encoding="utf-8")


def block(page, key):
    [text] = re.findall(rf'<script type="text/plain" id="block-{key}">([^<]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_a_corpus_cannot_end_an_element_of_the_page_and_the_page_asks_nobody(page):
    assert (
        page.count("<script") == page.count("</script>") == 1 + LAYERS + 1 + 2
    )  # document, layers, words, script and start
    assert "alert(1)" not in page
    assert page.count("<!--") == 0
    assert re.findall(r"https?://[^\s\"']+", page.replace("http://www.w3.org/2000/svg", "")) == []
    assert "default-src 'none'" in page


def test_the_document_has_the_role_jobs_and_means_of_every_head(atlas, page):
    [text] = re.findall(r'<script type="application/json" id="regard-document">(.*?)</script>', page)
    document = json.loads(text)
    assert document == json.loads(json.dumps(describe_atlas(atlas, "</title><script>")))
    assert [len(layer["heads"]) for layer in document["layers"]] == [H] * LAYERS
    for one in (one for layer in atlas for one in layer):
        info = document["layers"][one.layer]["heads"][one.head]
        assert info["role"] == one.role.name
        assert info["jobs"] == pytest.approx(one.jobs, rel=1e-3)
        means = {name: mean for name, mean in one.summary.items() if mean == mean}
        assert info["means"] == pytest.approx(means | {"stability": one.stability}, rel=1e-3, abs=1e-12)
    assert {one["name"]: one["measured"] for one in document["beside"]} == {
        "stability": True,
        "probe": False,
        "effect": False,
    }
    assert {one["name"] for one in document["statistics"]} == set(AVERAGED)


def test_a_block_has_the_distributions_and_examples_of_a_layer(atlas, page):
    layer = block(page, "layer\\.1")
    assert layer == json.loads(json.dumps(describe_heads(atlas[1])))
    head, described = atlas[1, 2], layer["heads"][2]
    for name, shape in described["shapes"].items():
        assert sum(shape["bins"]) == pytest.approx(1, abs=0.01)
        assert shape["deciles"] == pytest.approx([head.quantile(name, n / 10) for n in range(1, 10)], rel=1e-3)
        assert shape["ends"][0] <= max(shape["deciles"][0], 1e-3)
        assert shape["deciles"][8] <= shape["ends"][1] * 1.05
        assert shape["position"] == pytest.approx(head.by_position(name), rel=1e-3)
        assert shape["class"] == pytest.approx(head.by_class(name), rel=1e-3)
    for which in ("strongest", "uniform", *range(10)):
        stored = [described["examples"][place] for place in described["groups"][str(which)]]
        rows = head.examples(which)
        assert [one[1] for one in stored] == [row.token for row in rows]
        assert [one[0] for one in stored] == pytest.approx([row.strength for row in rows], abs=1e-3)
    for _, token, keys, weights, positions, numbers in described["examples"]:
        assert (len(keys), len(positions)) == (len(weights), len(numbers))
        assert {token, *keys} <= set(positions)
        assert max(numbers) < len(layer["words"])


def test_words_are_found_whole_from_each_of_their_pieces():
    pieces = {3: ExcerptToken(" A", False), 4: ExcerptToken("lic", True), 5: ExcerptToken("e", True)}
    row = ExampleRow(1, 5, 0.9, (3,), (0.9,), pieces | {6: ExcerptToken(".", False), 8: ExcerptToken("x", True)})
    assert [word_at(row, at) for at in (3, 4, 5, 6, 7, 8)] == ["alice", "alice", "alice", ".", "", "x"]


def test_a_word_finds_the_heads_that_look_from_or_at_it(atlas):
    expected = {}
    for number, head in enumerate(one for layer in atlas for one in layer):
        for row in (row for which in ("strongest", "uniform", *range(10)) for row in head.examples(which)):
            looked_at = [key for key, weight in zip(row.keys, row.weights, strict=True) if weight >= 0.1]
            for word in {word_at(row, at) for at in (row.token, *looked_at)} - {""}:
                expected.setdefault(word, set()).add(number)
    found = {word: set(heads) for word, heads in describe_words(atlas).items()}
    assert len(found) > 20
    assert {word: heads for word, heads in found.items() if heads != expected.get(word, heads)} == {}
    assert expected.keys() <= found.keys()


def test_a_head_without_tokens_or_effects_has_a_page_too():
    layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=None, dropout=0.0, num_heads=2)
    page = atlas_page(regard.atlas(layer, [torch.randn(1, 11, 8)]), "layer")
    described = block(page, "layer\\.0")["heads"][0]
    assert described["examples"] == []
    assert described["shapes"]["entropy"]["class"] == {}
    assert block(page, "words") == {}


def test_an_atlas_of_nothing_has_no_page():
    with pytest.raises(ValueError, match="the atlas has read nothing yet, so there is nothing to show"):
        atlas_page(Atlas([]))
