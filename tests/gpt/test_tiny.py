"""The model in the box: what docs/tiny.md says of it is so."""

import json
import re
from pathlib import Path

import pytest
import torch

import regard
from regard.gpt.checkpoint.model_directory import PACKAGED

BOOK = Path(__file__).parents[2] / "docs"
DOCS = (BOOK / "tiny.md").read_text()
BOX = PACKAGED


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


def test_it_fits_its_box():
    assert sum(file.stat().st_size for file in BOX.iterdir()) <= 12_000_000


def test_it_is_what_the_docs_say(model):
    assert f"{regard.count_parameters(model):,} parameters" in DOCS
    assert model.config == regard.GPTConfig.preset("tiny")
    assert model.token_embedding.weight.dtype is torch.float32
    assert model.tokenizer.vocab_size == 4096


def test_its_heads_have_the_scores_of_the_docs(model):
    once = torch.randint(1, 4096, (4, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.cat([once, once], dim=1))
    best = torch.stack([torch.stack([seen[i].previous[:, :, 1:], seen[i].induction[:, :, 1:]]) for i in range(6)])
    assert (best[:, 0].mean((1, 3)) >= 0.6).sum() == 1
    assert (best[:, 1, :, :, 200:].mean((1, 3)) >= 0.5).sum() == 1
    rows = re.findall(r"\| (\d) \| ([\d.]+) \(head (\d)\) \| ([\d.]+) \(head (\d)\) \|", DOCS)
    assert len(rows) == 6
    for layer, p, head, i, other in rows:
        previous = seen[int(layer)].previous[:, :, 1:].mean((0, 2))
        induction = seen[int(layer)].induction[:, :, 201:].mean((0, 2))
        documented = torch.tensor([float(p), float(i)], dtype=previous.dtype)
        torch.testing.assert_close(
            torch.stack([previous[int(head)], induction[int(other)]]), documented, rtol=0, atol=2e-3
        )
        torch.testing.assert_close(torch.stack([previous.max(), induction.max()]), documented, rtol=0, atol=2e-3)


def test_it_has_learnt_english(model):
    """Sentences are less of a surprise than their words in another order; to guess blindly costs log 4096 = 8.3."""
    text = (
        "The old man sat down by the fire and looked at the letter in his hand. He had not seen his brother for twenty "
        "years, and he did not know what he should say to him when he came into the room."
    )
    words = text.split()
    shuffled = [words[i] for i in torch.randperm(len(words), generator=torch.Generator().manual_seed(0))]
    losses = []
    for said in (text, " ".join(shuffled)):
        ids = torch.tensor([model.tokenizer.encode(said)])
        losses.append(model.loss(ids[:, :-1], ids[:, 1:]).item())
    assert losses[0] < 2.5
    assert losses[1] > losses[0] + 2


def test_it_continues_the_same_way_every_time(model):
    result = model.generate("Once upon a time", max_new_tokens=12, temperature=0)
    assert result == model.generate("Once upon a time", max_new_tokens=12, temperature=0)
    assert re.fullmatch(r"[\w\s,.;'’\"“”!?-]+", result)


def test_the_docs_tell_what_the_log_says():
    log = [json.loads(line) for line in (BOOK / "tiny" / "log.jsonl").read_text().splitlines()]
    assert f"**{log[-1]['val_loss']:.3f}** nats per token" in DOCS
    assert f"{log[-1]['loss']:.3f} in the last step" in DOCS
    assert f"--steps {log[-1]['step']} " in DOCS
    assert log[-1]["tokens"] == 8000 * 256 * 512
    assert min(line.get("val_loss", 9) for line in log) == log[-1]["val_loss"]
