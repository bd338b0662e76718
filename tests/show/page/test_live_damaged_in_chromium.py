"""A damaged file of a page that runs its model says so in a sentence; it is never blank."""

import base64
import gzip
import re

import pytest
import torch
from chromium import needs_chromium
from safetensors.torch import load, save

import regard
from regard.show.page.live import live_page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def html():
    return live_page(regard.GPT.from_pretrained("tiny"), "tiny").html()


def with_block(text, name, change):
    """A page in which a block has other bytes."""
    found = re.search(rf'id="block-{name}">([^<]*)<', text)
    content = gzip.compress(change(gzip.decompress(base64.b64decode(found[1]))))
    return text[: found.start(1)] + base64.b64encode(content).decode() + text[found.end(1) :]


def nan_weights(weights):
    tensors = load(weights)
    tensors["token_embedding.weight"][7:] = torch.nan
    return save(tensors)


DAMAGED = {
    "NaN weights": (lambda text: with_block(text, "model", nan_weights), "its weights are damaged"),
    "other bytes": (
        lambda text: with_block(text, "model", lambda old: old[:-999]),
        "The model in this page is damaged",
    ),
    "no model": (lambda text: text.replace('id="block-model"', 'id="block-other"'), "model is not in this file"),
    "no document": (lambda text: text.replace('"settings":', '"settings";'), "This file is damaged"),
    "cut off": (lambda text: text[: text.index('id="block-model">') + 60_000], "the file is incomplete"),
    "a worker that fails": (lambda text: with_block(text, "worker", lambda _: b"throw 1"), "cannot run its model"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_says_so_in_a_sentence(name, browser, html, tmp_path):
    damage, sentence = DAMAGED[name]
    damaged = tmp_path / "damaged.html"
    damaged.write_text(damage(html), encoding="utf-8")
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.goto(damaged.as_uri())
    tab.get_by_text(re.compile(sentence)).first.wait_for()
    context.close()
