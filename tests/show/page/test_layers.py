"""Blocks on demand: the same page as all at once, and nothing is computed before it is asked for."""

import gzip

import pytest
import torch

import regard
from regard.show.page.encode import Encoding, decode_weights
from regard.show.page.layers import PageLayer
from regard.show.page.long import LongLayer
from regard.show.page.payload import BlocksOnDemand, page_data, page_on_demand
from regard.show.page.write import titled_texts


def seen_at(*texts, causal=True, keep=None):
    """A report of batches (B, T), through a layer of three heads."""
    torch.manual_seed(7)
    layer = regard.MultiHeadAttention(12, 12, context_length=None, dropout=0.0, num_heads=3, causal=causal)
    with torch.no_grad(), regard.watch(layer, keep=keep) as seen:
        for B, T in texts:
            layer(torch.randn(B, T, 12))
    return seen


@pytest.mark.parametrize("causal", [True, False])
def test_the_page_is_the_same_as_all_at_once(causal):
    reports = titled_texts(seen_at((2, 7), (1, 67), causal=causal), "mine")
    at_once, on_demand = page_data(reports, thumbnails=True), page_on_demand(reports)
    assert on_demand.document == at_once.document
    assert set(on_demand.blocks) == set(at_once.blocks)
    assert {key: on_demand.blocks[key] for key in on_demand.blocks} == at_once.blocks


def test_a_long_text_is_the_same_head_by_head():
    reports = titled_texts(seen_at((1, 521)), "long")
    at_once, on_demand = page_data(reports, thumbnails=True), page_on_demand(reports)
    assert on_demand.document == at_once.document
    assert {key: on_demand.blocks[key] for key in on_demand.blocks} == at_once.blocks


def test_a_long_text_that_sees_itself_whole_is_no_triangle():
    seen = seen_at((1, 521), causal=False)
    data = page_on_demand(titled_texts(seen, ""))
    assert data.document["reports"][0]["layers"][0]["encoding"]["triangle"] is False
    whole = LongLayer.of(seen, 0, 0)
    assert gzip.decompress(data.blocks["long.0.0.1"]) == whole.block(1)


def test_no_weight_is_computed_before_its_head_is_asked_for(monkeypatch):
    seen = seen_at((1, 7))
    computed = []
    of_head = PageLayer.block
    monkeypatch.setattr(PageLayer, "block", lambda layer, head: computed.append(head) or of_head(layer, head))
    monkeypatch.setattr(PageLayer, "small", lambda layer, most: computed.append("small") or (b"", b""))
    data = page_on_demand(titled_texts(seen, ""))
    assert computed == []
    read = decode_weights(gzip.decompress(data.blocks["weights.0.0.2"]), 7, 7, Encoding("linear16", triangle=True))
    assert computed == [2]
    torch.testing.assert_close(torch.from_numpy(read).nan_to_num().float(), seen[0, 2].weights()[0], atol=1e-5, rtol=0)
    data.blocks["strongest.0"], data.blocks["strongest.0"]
    assert computed == [2, "small"]  # once


def test_the_texts_of_a_batch_share_the_description_of_their_heads(monkeypatch):
    seen = seen_at((5, 7))
    counted = []
    portraits = type(seen).portraits
    monkeypatch.setattr(type(seen), "portraits", lambda report: counted.append(1) or portraits(report))
    assert len(page_on_demand(titled_texts(seen, "")).document["reports"]) == 5
    assert len(counted) == 2  # once for the heads, once for their order


def test_a_report_without_queries_and_keys_is_refused_before_it_is_shown():
    with pytest.raises(ValueError, match=r"the page needs the queries and keys of .*; watch with keep=True"):
        page_on_demand(titled_texts(seen_at((1, 7), keep=False), ""))


def test_a_mapping_of_functions_says_what_is_in_it_without_calling_them():
    blocks = BlocksOnDemand({"strongest.0": lambda: 1 / 0})
    assert ("strongest.0" in blocks, "weights.0.0.0" in blocks, len(blocks)) == (True, False, 1)
    with pytest.raises(ZeroDivisionError):
        blocks["strongest.0"]
