"""What transformers saves loads here, what is saved here loads there, and both say the same."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from gpt.directories import IDS, KINDS, logits, ours, rewrite, snapshot, theirs
from regard import GPT, GPTConfig, Rotary
from regard.gpt.block import Block
from regard.gpt.checkpoint.pretrained import INDEX, WHOLE, load, save
from regard.gpt.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", KINDS)
def test_a_model_of_transformers_loads_and_says_the_same(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path)
    found = GPT.from_pretrained(tmp_path)
    assert not found.training
    torch.testing.assert_close(logits(found, IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_what_we_save_transformers_loads_and_says_the_same(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    load(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(logits(back, IDS), logits(model, IDS), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shards_load_as_one_file_does(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / WHOLE).exists()
    torch.testing.assert_close(logits(load(tmp_path), IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shards_that_we_write_load_here_and_there(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "ours", shard_size=20_000)
    files = sorted(os.listdir(tmp_path / "ours"))
    shards = [file for file in files if file.endswith(".safetensors")]
    assert len(shards) > 2
    assert files == ["config.json", *shards, INDEX]
    assert all((tmp_path / "ours" / file).stat().st_size < 25_000 for file in shards)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(logits(back, IDS), logits(model, IDS), rtol=0, atol=0)
    torch.testing.assert_close(logits(load(tmp_path / "ours"), IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


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
    back = load(tmp_path)
    assert back.config == model.config
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(logits(back, IDS), logits(model, IDS), rtol=0, atol=0)


def test_of_a_model_that_only_we_know_transformers_says_so(tmp_path):
    GPT(GPTConfig(97, 23, 2, 60, 6, rotary=Rotary(500.0))).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regard"
    assert load(tmp_path).config.rotary == Rotary(500.0)
    with pytest.raises(ValueError, match="regard"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_is_that_of_the_file_unless_told(tmp_path, dtype):
    model = ours().to(dtype)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    back = load(tmp_path)
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    told = load(tmp_path, dtype=torch.float32)
    torch.testing.assert_close(told.state_dict(), model.float().state_dict(), rtol=0, atol=0)


def test_transformers_own_bf16_file_loads(tmp_path):
    theirs("llama").bfloat16().save_pretrained(tmp_path)
    found = load(tmp_path)
    assert {p.dtype for p in found.parameters()} == {torch.bfloat16}
    wide = load(tmp_path, dtype=torch.float32)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(wide, IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


def test_a_loaded_model_can_be_trained_and_its_projections_lie_side_by_side(gpt2):
    model = load(gpt2)
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())
    assert all(not parameter.is_meta for parameter in model.parameters())
    for block in model.blocks:
        assert isinstance(block, Block)
        assert block.attention._rooms.keys() == {"weight", "bias"}


def test_a_loaded_model_no_longer_needs_its_file(gpt2):
    model = load(gpt2)
    before = logits(model, IDS)
    with (gpt2 / WHOLE).open("r+b") as file:
        file.truncate(0)
    torch.testing.assert_close(logits(model, IDS), before, rtol=0, atol=0)


def test_loading_draws_no_random_numbers(gpt2):
    before = torch.random.get_rng_state()
    load(gpt2)
    assert torch.random.get_rng_state().equal(before)


def test_loading_starts_no_compiler(gpt2):
    code = f"""
import sys
from regard import GPT
before = "torch._dynamo" in sys.modules
GPT.from_pretrained({str(gpt2)!r})
print(before or "torch._dynamo" not in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"  # it takes seconds to import, and random numbers on the meta device do import it


def test_the_model_goes_to_the_device_that_was_told(gpt2):
    assert load(gpt2, device="cpu").head_weight.device == torch.device("cpu")


def test_a_file_without_prefix_and_with_old_buffers_loads_as_openai_published_it(gpt2):
    model = load(gpt2)

    def as_published(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 23, 23, dtype=torch.bool)
        tensors["h.1.attn.masked_bias"] = torch.tensor(-1e4)

    rewrite(gpt2, as_published)
    torch.testing.assert_close(load(gpt2).state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("both", [False, True])
def test_a_tied_head_may_be_stored_too_or_alone(gpt2, both):
    model = load(gpt2)

    def change(tensors):
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
        if not both:
            del tensors["transformer.wte.weight"]

    rewrite(gpt2, change)
    torch.testing.assert_close(load(gpt2).state_dict(), model.state_dict(), rtol=0, atol=0)


def test_the_newer_checkpoint_is_found_whatever_the_older_was(tmp_path):
    first, second, third = (ours().eval() for _ in range(3))
    for model, shard_size in ((first, 10_000), (second, 10**9), (third, 20_000), (first, 10_000), (second, 10**9)):
        save(model, tmp_path, shard_size=shard_size)
        torch.testing.assert_close(load(tmp_path).state_dict(), model.state_dict(), rtol=0, atol=0)
    assert sorted(os.listdir(tmp_path)) == ["config.json", WHOLE]


def test_other_files_of_the_directory_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other.safetensors").write_text("mine")
    save(ours(), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", WHOLE, "notes.txt", "other.safetensors"]


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
    assert load(tmp_path / "a" / "b").config == ours().config


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
    torch.testing.assert_close(load(tmp_path).state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_tokenizer_travels_with_its_model(tmp_path):
    model = GPT(GPTConfig(300, 23, 2, 21, 3, end=0))
    model.tokenizer = Tokenizer.train(["to be or not to be, that is the question"] * 3, vocab_size=300)
    model.save_pretrained(tmp_path)
    assert load(tmp_path).tokenizer == model.tokenizer
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
    assert load(tmp_path).tokenizer == model.tokenizer


def test_what_ends_a_text_is_said_by_generation_config_first(gpt2):
    assert load(gpt2).config.ends == (96,)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": [5, 96, 97]}')
    assert load(gpt2).config.ends == (5, 96)  # there is no token 97
    (gpt2 / "generation_config.json").write_text("{}")
    assert load(gpt2).config.ends == (96,)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id is '</s>'; it must be a token id"):
        load(gpt2)


def test_an_older_generation_config_does_not_end_the_texts_of_a_new_model(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6], "top_k": 3}')
    model = GPT(GPTConfig(vocab_size=31, context_length=8, num_layers=1, d_model=8, num_heads=2, end=7))
    model.save_pretrained(tmp_path)
    assert GPT.from_pretrained(tmp_path).config.ends == (7,)
