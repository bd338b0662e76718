"""What is saved here loads in transformers and here, and a failed save leaves the old model."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from gpt.directories import IDS, KINDS, logits, ours, snapshot, theirs
from regard import GPT, GPTConfig, Rotary
from regard.gpt.checkpoint.saving import save
from regard.gpt.checkpoint.stored_tensors import INDEX, SINGLE
from regard.gpt.tokenizer.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", KINDS)
def test_what_we_save_transformers_loads_and_says_the_same(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    GPT.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(logits(back, IDS), logits(model, IDS), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shards_that_we_write_load_here_and_there(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    save(GPT.from_pretrained(tmp_path / "theirs"), tmp_path / "ours", shard_size=20_000)
    files = sorted(os.listdir(tmp_path / "ours"))
    shards = [file for file in files if file.endswith(".safetensors")]
    assert len(shards) > 2
    assert files == ["config.json", *shards, INDEX]
    assert all((tmp_path / "ours" / file).stat().st_size < 25_000 for file in shards)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(logits(back, IDS), logits(model, IDS), rtol=0, atol=0)
    torch.testing.assert_close(
        logits(GPT.from_pretrained(tmp_path / "ours"), IDS), logits(model, IDS), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dropout": 0.1, "tied": False, "end": 5},
        {"norm": "rms", "feed_forward": "swiglu", "bias": False, "qkv_bias": False, "norm_eps": 1e-6},
        {"window": 5, "num_kv_heads": 1, "qk_norm": True, "d_ff": 29},
    ],
)
def test_a_model_comes_back_as_it_was_whether_transformers_knows_it_or_not(tmp_path, changes):
    model = ours(**changes).eval()
    model.save_pretrained(tmp_path)
    back = GPT.from_pretrained(tmp_path)
    assert back.config == model.config
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(logits(back, IDS), logits(model, IDS), rtol=0, atol=0)


def test_of_a_model_that_only_we_know_transformers_says_so(tmp_path):
    GPT(GPTConfig(97, 23, 2, 60, 6, rotary=Rotary(500.0))).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regard"
    assert GPT.from_pretrained(tmp_path).config.rotary == Rotary(500.0)
    with pytest.raises(ValueError, match="regard"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


def test_the_newer_checkpoint_is_found_whatever_the_older_was(tmp_path):
    first, second, third = (ours().eval() for _ in range(3))
    for model, shard_size in ((first, 10_000), (second, 10**9), (third, 20_000), (first, 10_000), (second, 10**9)):
        save(model, tmp_path, shard_size=shard_size)
        torch.testing.assert_close(GPT.from_pretrained(tmp_path).state_dict(), model.state_dict(), rtol=0, atol=0)
    assert sorted(os.listdir(tmp_path)) == ["config.json", SINGLE]


def test_other_files_of_the_directory_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other.safetensors").write_text("mine")
    save(ours(), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", SINGLE, "notes.txt", "other.safetensors"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_full_disk_while_saving_leaves_the_old_checkpoint_as_it_was(sharded, monkeypatch, at):
    import safetensors.torch

    before, saved = snapshot(sharded), []

    def full(tensors, path, metadata):
        saved.append(path)
        if len(saved) == at:
            raise safetensors.SafetensorError(
                "Error while serializing: I/O error: No space left on device (os error 28)"
            )
        return save_file(tensors, path, metadata)

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    file = rf"sharded/model-0000{at}-of-\d+.safetensors"
    with pytest.raises(OSError, match=rf"{file} could not be written: the disk is full; .* before is untouched"):
        save(ours(), sharded, shard_size=10_000)
    assert snapshot(sharded) == before


def test_saving_where_a_file_stands_is_refused(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ValueError, match=r"model is a file; give the name of a directory"):
        ours().save_pretrained(tmp_path / "model")


def test_directories_are_made_on_the_way(tmp_path):
    ours().save_pretrained(tmp_path / "a" / "b")
    assert GPT.from_pretrained(tmp_path / "a" / "b").config == ours().config


def test_a_model_without_weights_is_not_saved(tmp_path):
    with torch.device("meta"):
        model = ours()
    with pytest.raises(
        ValueError, match=r"the model has no weights for token_embedding.weight, .* and \d+ more.*Nothing was"
    ):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_weights_may_come_from_elsewhere(tmp_path):
    model, other = ours(), ours()
    save(model, tmp_path, state=other.state_dict())
    torch.testing.assert_close(GPT.from_pretrained(tmp_path).state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_tokenizer_travels_with_its_model(tmp_path):
    model = GPT(GPTConfig(300, 23, 2, 21, 3, end=0))
    model.tokenizer = Tokenizer.train(["to be or not to be, that is the question"] * 3, vocab_size=300)
    model.save_pretrained(tmp_path)
    assert GPT.from_pretrained(tmp_path).tokenizer == model.tokenizer
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again("not to be: naïve 🐈")["input_ids"] == model.tokenizer.encode("not to be: naïve 🐈")
    assert again.eos_token_id == 0
    assert again.model_max_length == 23


def test_a_tokenizer_that_is_there_already_keeps_what_else_is_said_of_it(tmp_path):
    model = GPT(GPTConfig(300, 23, 2, 21, 3, end=0))
    model.tokenizer = Tokenizer.train(["to be or not to be"], vocab_size=270)
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "mine"}')
    model.save_pretrained(tmp_path)
    assert "mine" in (tmp_path / "tokenizer_config.json").read_text()
    model.tokenizer = Tokenizer.train(["another one"], vocab_size=258)
    model.save_pretrained(tmp_path)
    assert "mine" not in (tmp_path / "tokenizer_config.json").read_text()
    assert GPT.from_pretrained(tmp_path).tokenizer == model.tokenizer


def test_an_older_generation_config_does_not_end_the_texts_of_a_new_model(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6], "top_k": 3}')
    model = GPT(GPTConfig(vocab_size=31, context_length=8, num_layers=1, d_model=8, num_heads=2, end=7))
    model.save_pretrained(tmp_path)
    assert GPT.from_pretrained(tmp_path).config.ends == (7,)
