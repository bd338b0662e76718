"""A page that runs its model: what it holds, and what it may do. What it shows is in test_live_in_chromium.py."""

import base64
import gzip
import json
import re

import pytest
import torch
from safetensors.torch import load

import regard
from regard.commands.shared.texts import REPEATED
from regard.heads.measure.registry import AVERAGED
from regard.heads.report.roles import ROLES
from regard.show.page.live import EXAMPLES, describe_measures, live_page

SMALL = regard.GPTConfig(vocab_size=300, context_length=17, num_layers=2, d_model=12, num_heads=3)


def small_model():
    model = regard.GPT(SMALL)
    model.tokenizer = regard.Tokenizer.train(["the cat sat on the mat"], vocab_size=262)
    return model


def test_the_page_holds_the_model_its_tokenizer_and_its_worker():
    model = small_model()
    text = live_page(model, "small", "the <b>cat</b>").html()
    document = json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL)[1])
    assert document["settings"]["text"] == "the <b>cat</b>"
    assert document["live"]["longest"] == 17
    blocks = dict(re.findall(r'id="block-(\w+)">(.*?)</script>', text))
    stored = load(gzip.decompress(base64.b64decode(blocks["model"])))
    assert set(stored) == {name for name, _ in model.named_parameters()}
    assert b"onmessage" in gzip.decompress(base64.b64decode(blocks["worker"]))
    assert "<b>cat" not in text


def test_only_the_page_itself_can_run_and_nothing_can_be_fetched():
    text = live_page(small_model(), "small", "the cat").html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["worker-src"] == "blob:"
    assert re.fullmatch(r"('sha256-[^']+' ){2}'wasm-unsafe-eval'", rules["script-src"])
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "worker-src"}


def test_every_averaged_statistic_and_every_role_is_described():
    measures = describe_measures()
    assert measures["averaged"] == list(AVERAGED)
    assert {*measures["targets"], "entropy", "distance", "largest"} == set(AVERAGED)
    assert [one["name"] for one in measures["roles"]] == list(ROLES)


def test_a_model_without_a_tokenizer_is_refused():
    with pytest.raises(ValueError, match=r"a page that runs a model needs its tokenizer; set model\.tokenizer"):
        live_page(regard.GPT(SMALL), "small", "the cat").html()


def test_a_report_is_written_as_a_live_page_of_its_model_and_its_text(tmp_path):
    model = small_model()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode("the cat\nsat")]))
    seen.to_html(tmp_path / "live.html", title="cats", live=True)
    text = (tmp_path / "live.html").read_text(encoding="utf-8")
    settings = json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL)[1])["settings"]
    assert (settings["models"], settings["text"]) == (["cats"], "the cat\nsat")


def watched(model, ids, *, gone=False):
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor(ids))
    if gone:
        seen.save(gone)
        return regard.load_seen(gone)
    return seen


def test_what_cannot_be_a_live_page_is_refused(tmp_path):
    path, model = tmp_path / "live.html", small_model()
    with pytest.raises(ValueError, match=r"live=True needs the model that was watched, and it is gone, or the report"):
        watched(model, [[1, 2]], gone=tmp_path / "seen.safetensors").to_html(path, live=True)
    with pytest.raises(ValueError, match=r"live=True begins with one text and here there are 2 texts"):
        watched(model, [[1, 2], [3, 4]]).to_html(path, live=True)
    with pytest.raises(ValueError, match=r"live=True shows what is typed, with all steps; leave effects and steps out"):
        watched(model, [[1, 2]]).to_html(path, live=True, steps={})
    layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=16, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 5, 8))
    with pytest.raises(ValueError, match=r"a live page runs a regard.GPT and this is a MultiHeadAttention"):
        seen.to_html(path, live=True)
    assert not path.exists()


def test_a_live_page_begins_with_the_text_of_all_commands_and_has_five_examples():
    assert len(EXAMPLES) == 5
    assert next(iter(EXAMPLES.values())) == REPEATED
    assert live_page(small_model(), "small").text == REPEATED
