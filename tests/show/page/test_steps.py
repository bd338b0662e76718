"""The steps of a layer in a page: every number comes back, and numbers that steps share are stored once."""

import gzip
import json

import numpy as np
import pytest
import torch

import regard
from regard.show.page.computed_steps import rounded
from regard.show.page.payload import Titled, page_data
from regard.show.page.steps import LayerSizes, describe_steps, to_planes
from regard.support.tokens import TextTokens
from regard.traces.trace import trace_layer

ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank,\n"
    "and Alice was beginning to get very tired of sitting by her sister on the bank.\n"
)


def read(document, blocks):
    """The tensor of a step, as js/data/step-tensors.js reads it."""
    content = np.frombuffer(gzip.decompress(blocks[document["block"]]), dtype=np.uint8)
    planes = content.reshape(document["bytes"], -1).astype(np.uint32)
    bits = sum(plane << np.uint32(24 - 8 * i) for i, plane in enumerate(planes))
    return torch.from_numpy(bits.astype(np.uint32).view(np.float32).copy()).as_strided(
        document["sizes"], document["strides"]
    )


def described(trace, sizes, text=0):
    steps, blocks = describe_steps(trace, sizes, text, "steps.0.0")
    return {one["name"]: one for one in steps}, blocks


def grouped(B=2, T=7):
    """A trace of a layer of 6 heads that share 2 key heads, with rotary positions and norms."""
    layer = regard.MultiHeadAttention(30, 30, None, 0.0, 6, num_kv_heads=2, rotary=False, qk_norm=True).eval()
    return regard.trace(layer, torch.randn(B, T, 30)), LayerSizes(6, 2, T, T)


def test_every_stored_step_of_one_text_comes_back_to_four_digits():
    trace, sizes = grouped()
    steps, blocks = described(trace, sizes, text=1)
    assert list(steps) == trace.names
    stored = [step for step in trace if not steps[step.name]["made"]]
    assert len(stored) == 13
    for step in stored:
        torch.testing.assert_close(read(steps[step.name], blocks), step.value[1], rtol=2**-13, atol=0)


def test_axes_are_named_and_shapes_are_those_of_the_whole_batch():
    steps, _ = described(*grouped())
    named = {name: one["axes"] for name, one in steps.items()}
    assert named["x"] == ["query", "width"]
    assert named["values"] == ["key", "width"]
    assert named["split"] == ["query", "head", "width"]
    assert named["normed keys"] == ["head", "key", "width"]
    assert named["weights"] == ["head", "query", "key"]
    assert [steps[name]["heads"] for name in ("x", "queries", "keys", "concat", "out")] == [1, 6, 2, 6, 1]
    assert steps["scores"]["shape"] == "2 × 6 × 7 × 7"


def test_steps_that_read_the_same_numbers_share_a_block():
    steps, blocks = described(*grouped())
    for names in (("keys", "split keys", "transpose keys"), ("values", "split values", "transpose values")):
        assert len({steps[name]["block"] for name in names}) == 1
    assert steps["context"]["made"] == steps["back"]["made"] == steps["concat"]["made"]
    assert len(blocks) == len({one["block"] for one in steps.values() if one["block"]}) == 7


def test_infinity_and_not_a_number_stay_what_they_are():
    numbers = torch.tensor([-torch.inf, torch.inf, torch.nan, 0.0, -0.0, 1 + 2**-17, 65537.0])
    content = to_planes(numbers, 3)
    back = read({"block": "b", "bytes": 3, "sizes": [7], "strides": [1]}, {"b": gzip.compress(content)})
    torch.testing.assert_close(back, numbers, rtol=2**-16, atol=0, equal_nan=True)


def test_integers_are_exact():
    with regard.trace() as trace:
        regard.step("ids", torch.tensor([[50257, 100277, 3]]))
        regard.step("weights", torch.eye(3)[None, None])
    steps, blocks = described(trace, LayerSizes(1, 1, 3, 3))
    assert read(steps["ids"], blocks).flatten().tolist() == [50257, 100277, 3]


def test_integers_and_floats_of_the_same_values_are_stored_apart():
    with regard.trace() as trace:
        regard.step("hidden", torch.eye(3, dtype=torch.bool))
        regard.step("weights", torch.eye(3)[None, None])
    steps, blocks = described(trace, LayerSizes(1, 1, 3, 3))
    for one in steps.values():
        torch.testing.assert_close(read(one, blocks).reshape(3, 3), torch.eye(3))


def test_a_step_with_another_name_has_the_axes_that_its_sizes_tell():
    with regard.trace() as trace:
        regard.step("weights", torch.eye(5).expand(2, 3, 5, 5))
        regard.step("gated", torch.randn(2, 5, 11))
        regard.step("square", torch.randn(5, 5))
        regard.step("table", torch.randn(13, 11))
        regard.step("turned round", torch.randn(2, 11, 5))
        regard.step("transpose", torch.randn(2, 3, 5, 11))
    steps, _ = described(trace, LayerSizes(3, 3, 5, 5))
    axes = {name: one["axes"] for name, one in steps.items()}
    assert axes.pop("weights") == ["head", "query", "key"]
    assert axes.pop("transpose") == ["head", "query", ""]
    assert axes == {"gated": ["query", ""], "square": ["", ""], "table": ["", ""], "turned round": ["", ""]}


def test_a_step_that_is_too_large_is_described_without_numbers(monkeypatch):
    monkeypatch.setattr("regard.show.page.steps.MOST", 7 * 30)
    monkeypatch.setattr("regard.show.page.computed_steps.MOST", 7 * 30)
    steps, blocks = described(*grouped())
    assert steps["x"]["block"] in blocks
    assert steps["scores"]["block"] is steps["scores"]["made"] is steps["context"]["made"] is None


@pytest.fixture(scope="module")
def alice():
    """The model in the package on 37 tokens, with the steps of layer 4."""
    model = regard.GPT.from_pretrained("tiny")
    ids = model.tokenizer.encode(ALICE)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([ids]))
    tokens = TextTokens(model.tokenizer.pieces(ids))
    return Titled("tiny", seen, tokens=tokens, steps={4: trace_layer(model, 4, torch.tensor([ids]))})


def test_the_steps_of_a_layer_take_less_than_400_kilobytes(alice):
    page = page_data([alice])
    stored = {key: content for key, content in page.blocks.items() if key.startswith("steps.0.4.")}
    assert len(alice.tokens) == 37
    assert 0 < sum(map(len, stored.values())) * 4 / 3 < 400_000


def test_numbers_that_are_only_drawn_have_fewer_bits():
    torch.manual_seed(3)
    for width, bits in ((67, 8), (7, 12)):
        layer = regard.MultiHeadAttention(width, 6, None, 0.0, 3)
        trace = trace_layer(torch.nn.Sequential(layer), 0, torch.randn(1, 5, width))
        steps, compressed = describe_steps(trace, LayerSizes(3, 3, 5, 5), 0, "s")
        stored = read(next(one for one in steps if one["name"] == "x"), compressed)
        assert torch.equal(stored, rounded(trace["x"][0], bits))


def test_a_layer_without_steps_says_how_to_add_them(alice):
    layers = page_data([alice]).document["reports"][0]["layers"]
    assert [layer["steps"] is None for layer in layers] == [True, True, True, True, False, True]
    assert layers[1]["without_steps"] == (
        "The steps of layer 1 are not in this page. Only layers of regard name their steps; to add those of one: "
        "seen.to_html(path, steps={1: trace_layer(model, 1, ids)}), with trace_layer of regard.traces.trace; "
        "seen.widget takes steps, too."
    )


def test_what_is_said_of_missing_steps_works_in_a_notebook_and_in_a_file(alice, tmp_path):
    pytest.importorskip("anywidget")
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode("The cat sat on the mat")])
    with torch.no_grad(), regard.watch(model, tokenizer=model.tokenizer, keep=True) as seen:
        model(ids)
    widget = seen.widget(steps={1: trace_layer(model, 1, ids)})
    layers = json.loads(widget.document)["reports"][0]["layers"]
    assert [layer["steps"] is None for layer in layers] == [True, False, True, True, True, True]
    assert all(one["block"] is None or one["block"] in widget._data.blocks for one in layers[1]["steps"])
    seen.to_html(tmp_path / "page.html", steps={1: trace_layer(model, 1, ids)})
    assert 'id="block-steps.0.1.0"' in (tmp_path / "page.html").read_text()


def test_steps_of_another_run_or_layer_are_refused(alice):
    with pytest.raises(ValueError, match="steps has layer 6; this report has layers 0 to 5"):
        page_data([Titled("tiny", alice.seen, steps={6: alice.steps[4]})])
    other = regard.trace(regard.MultiHeadAttention(16, 16, None, 0.0, 8), torch.randn(1, 5, 16))
    with pytest.raises(
        ValueError, match="the trace has 5 queries × 5 keys and the report 37 × 37; trace the layer with"
    ):
        page_data([Titled("tiny", alice.seen, steps={4: other})])
