"""A page that runs its model: what it holds, and what it may do. What it shows is in test_live_in_chromium.py."""

import base64
import gzip
import json
import re

import pytest
from safetensors.torch import load

import regard
from regard.heads.measure.registry import AVERAGED
from regard.heads.report.roles import ROLES
from regard.show.page.live import describe_measures, live_page

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
