"""What transformers saves loads here, and gives the same results."""

import json
import subprocess
import sys

import pytest
import torch

from gpt.directories import IDS, KINDS, logits, ours, rewrite, theirs
from regard import GPT
from regard.gpt.checkpoint.stored_tensors import SINGLE

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", KINDS)
def test_a_model_of_transformers_loads_and_says_the_same(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path)
    found = GPT.from_pretrained(tmp_path)
    assert not found.training
    torch.testing.assert_close(logits(found, IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shards_load_as_one_file_does(tmp_path, name):
    model = theirs(name)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / SINGLE).exists()
    torch.testing.assert_close(logits(GPT.from_pretrained(tmp_path), IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_is_that_of_the_file_unless_told(tmp_path, dtype):
    model = ours().to(dtype)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    back = GPT.from_pretrained(tmp_path)
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    told = GPT.from_pretrained(tmp_path, dtype=torch.float32)
    torch.testing.assert_close(told.state_dict(), model.float().state_dict(), rtol=0, atol=0)


def test_transformers_own_bf16_file_loads(tmp_path):
    theirs("llama").bfloat16().save_pretrained(tmp_path)
    found = GPT.from_pretrained(tmp_path)
    assert {p.dtype for p in found.parameters()} == {torch.bfloat16}
    wide = GPT.from_pretrained(tmp_path, dtype=torch.float32)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(wide, IDS), logits(model, IDS), rtol=1e-5, atol=1e-5)


def test_a_loaded_model_can_be_trained(gpt2):
    model = GPT.from_pretrained(gpt2)
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())
    assert all(not parameter.is_meta for parameter in model.parameters())


def test_a_loaded_model_no_longer_needs_its_file(gpt2):
    model = GPT.from_pretrained(gpt2)
    before = logits(model, IDS)
    with (gpt2 / SINGLE).open("r+b") as file:
        file.truncate(0)
    torch.testing.assert_close(logits(model, IDS), before, rtol=0, atol=0)


def test_loading_draws_no_random_numbers(gpt2):
    before = torch.random.get_rng_state()
    GPT.from_pretrained(gpt2)
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
    assert GPT.from_pretrained(gpt2, device="cpu").head_weight.device == torch.device("cpu")


def test_a_file_without_prefix_and_with_old_buffers_loads_as_openai_published_it(gpt2):
    model = GPT.from_pretrained(gpt2)

    def as_published(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 23, 23, dtype=torch.bool)
        tensors["h.1.attn.masked_bias"] = torch.tensor(-1e4)

    rewrite(gpt2, as_published)
    torch.testing.assert_close(GPT.from_pretrained(gpt2).state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("both", [False, True])
def test_a_tied_head_may_be_stored_too_or_alone(gpt2, both):
    model = GPT.from_pretrained(gpt2)

    def change(tensors):
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
        if not both:
            del tensors["transformer.wte.weight"]

    rewrite(gpt2, change)
    torch.testing.assert_close(GPT.from_pretrained(gpt2).state_dict(), model.state_dict(), rtol=0, atol=0)


def test_what_ends_a_text_is_said_by_generation_config_first(gpt2):
    assert GPT.from_pretrained(gpt2).config.ends == (96,)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": [5, 96, 97]}')
    assert GPT.from_pretrained(gpt2).config.ends == (5, 96)  # there is no token 97
    (gpt2 / "generation_config.json").write_text("{}")
    assert GPT.from_pretrained(gpt2).config.ends == (96,)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id is '</s>'; it must be a token id"):
        GPT.from_pretrained(gpt2)
