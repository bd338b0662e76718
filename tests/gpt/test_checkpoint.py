import json
import os
import re
import struct
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import GPT, GPTConfig, Rotary
from regard.gpt import checkpoint
from regard.gpt.block import Block
from regard.gpt.checkpoint import INDEX, WHOLE, load, save
from regard.gpt.names import places
from regard.gpt.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

GPT2 = {"vocab_size": 97, "n_positions": 23, "n_embd": 21, "n_layer": 2, "n_head": 3, "eos_token_id": 96}
LLAMA = {
    "vocab_size": 97,
    "max_position_embeddings": 23,
    "hidden_size": 60,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 11,
}
KINDS = {
    "gpt2": ("gpt2", {**GPT2, "bos_token_id": 96}),
    "gpt2, untied, another width inside": ("gpt2", {**GPT2, "bos_token_id": 96, "n_inner": 29, "tie_word_embeddings": False}),
    "llama": ("llama", {**LLAMA, "rms_norm_eps": 1e-5}),
    "llama, tied": ("llama", {**LLAMA, "tie_word_embeddings": True}),
    "llama 3": ("llama", {**LLAMA, "rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {**LLAMA, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}}),
    "llama, with biases": ("llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {**LLAMA, "sliding_window": 5}),
    "mistral without a window": ("mistral", {**LLAMA, "sliding_window": None}),
    "qwen2": ("qwen2", LLAMA),
    "qwen2 with a window": ("qwen2", {**LLAMA, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}),
    "qwen3": ("qwen3", {**LLAMA, "head_dim": 10, "tie_word_embeddings": True}),
}  # fmt: skip


def theirs(name):
    """A tiny model of transformers', with weights large enough that every one of them matters."""
    kind, told = KINDS[name]
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **told)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def logits(model, ids):
    with torch.no_grad():
        found = model(ids)
    return found if isinstance(model, GPT) else found.logits


def ours(**changes):
    return GPT(GPTConfig(97, 23, 2, 21, 3, **changes))


def rewrite(directory, change):
    """Change the tensors of model.safetensors, by a function of the dict."""
    tensors = {name: t.clone() for name, t in load_file(directory / WHOLE).items()}
    change(tensors)
    save_file(tensors, directory / WHOLE)


def snapshot(directory):
    return {name: (directory / name).read_bytes() for name in os.listdir(directory)}


@pytest.fixture
def gpt2(tmp_path):
    """The directory of a GPT-2, as transformers wrote it."""
    theirs("gpt2").save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


IDS = torch.randint(97, (2, 19), generator=torch.Generator().manual_seed(5))


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


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_dtype_that_nothing_can_be_computed_in_is_refused(gpt2, dtype):
    with pytest.raises(ValueError, match=rf"dtype \({dtype}\) must be one of torch.float64, .* Nothing was loaded"):
        load(gpt2, dtype=dtype)


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


def test_a_tied_head_that_differs_is_refused(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(97, 21)}))
    with pytest.raises(
        ValueError, match=r"lm_head.weight and transformer.wte.weight differ.*tie_word_embeddings to false"
    ):
        load(gpt2)


def test_the_same_tensor_with_and_without_prefix_is_refused(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"ln_f.bias": torch.zeros(21)}))
    with pytest.raises(
        ValueError, match=r"(ln_f.bias and transformer|transformer.ln_f.bias and ln_f).* one and the same"
    ):
        load(gpt2)


def test_a_misshapen_tensor_of_gpt2_small_is_named_and_nothing_is_read(tmp_path):
    config = GPTConfig.preset("gpt2-small")
    shapes = {place.name: place.shape for place in places(config, "gpt2").values()}
    shapes["h.3.attn.c_attn.weight"] = (768, 2300)
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * torch.Size(shape).numel()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    with (tmp_path / WHOLE).open("wb") as file:  # sparse: half a gigabyte that takes no place
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)
    told = transformers.GPT2Config().to_dict()
    (tmp_path / "config.json").write_text(json.dumps(told))
    wanted = (
        "model.safetensors: h.3.attn.c_attn.weight is (768, 2300); gpt2-small needs (768, 2304). Nothing was loaded."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        load(tmp_path)


def test_missing_extra_and_misshapen_tensors_are_all_listed(gpt2):
    def change(tensors):
        del tensors["transformer.h.1.ln_2.bias"]
        tensors["score.weight"] = torch.zeros(2, 21)
        tensors["transformer.wpe.weight"] = torch.zeros(29, 21)
        tensors["transformer.ln_f.bias"] = tensors["transformer.ln_f.bias"].to(torch.int32)

    rewrite(gpt2, change)
    wanted = """model.safetensors: 4 tensors do not fit.
  score.weight is not part of config.json
  transformer.h.1.ln_2.bias is missing; config.json needs it, (21,)
  transformer.ln_f.bias is int32; weights are float64, float32, float16 or bfloat16
  transformer.wpe.weight is (29, 21); config.json needs (23, 21)
Nothing was loaded."""
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        load(gpt2)


def test_a_strangers_names_do_not_reach_the_terminal_as_they_are(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"\x1b[2J" + "x" * 1000: torch.zeros(1)}))
    with pytest.raises(ValueError, match=r"safetensors: '\\x1b\[2Jx{50,80}… is not part of config.json\. Nothing"):
        load(gpt2)


def test_a_long_list_is_cut_after_ten(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({f"extra.{i:02}": torch.zeros(1) for i in range(17)}))
    with pytest.raises(
        ValueError, match=r"17 tensors do not fit\.\n(  extra.\d\d is not .*\n){10}  and 7 more\nNothing"
    ):
        load(gpt2)


def test_an_untied_head_that_is_missing_is_named(tmp_path):
    theirs("llama").save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ValueError, match=r"lm_head.weight is missing; config.json needs it, \(97, 60\)"):
        load(tmp_path)


def test_tensors_of_several_dtypes_need_a_word(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"transformer.ln_f.bias": torch.zeros(21, dtype=torch.float16)}))
    with pytest.raises(
        ValueError, match=r"several dtypes, 27 of torch.float32, 1 of torch.float16; choose one with dtype="
    ):
        load(gpt2)
    assert load(gpt2, dtype=torch.float32).head_weight.dtype is torch.float32


def test_a_billion_layers_are_refused_before_one_is_built(gpt2):
    told = json.loads((gpt2 / "config.json").read_text())
    (gpt2 / "config.json").write_text(json.dumps({**told, "n_layer": 10**9}))
    with pytest.raises(ValueError, match=r"1000000000 layers cannot be made of the 28 tensors in model.safetensors"):
        load(gpt2)


def test_a_truncated_file_is_refused(gpt2):
    whole = (gpt2 / WHOLE).read_bytes()
    (gpt2 / WHOLE).write_bytes(whole[:-1])
    with pytest.raises(
        ValueError, match=r"download it again: the file is shorter than its header says\. Nothing was loaded"
    ):
        load(gpt2)


def test_a_directory_without_a_config_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no config.json; is it the directory of a model\? Nothing was loaded"):
        load(tmp_path)


def test_a_config_that_is_not_understood_is_named_with_its_path(gpt2):
    (gpt2 / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match=rf"{gpt2}/config.json: model_type is 'bert'; .*Nothing was loaded"):
        load(gpt2)


def test_a_directory_without_weights_is_refused(gpt2):
    (gpt2 / WHOLE).unlink()
    with pytest.raises(ValueError, match=rf"has neither model.safetensors nor {INDEX}; is it the directory of a model"):
        load(gpt2)


def test_pickles_are_refused_with_the_way_to_convert_them(gpt2):
    (gpt2 / WHOLE).rename(gpt2 / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"holds pytorch_model.bin .*runs whatever code.*convert it with transformers: Auto"
    ):
        load(gpt2)


@pytest.fixture
def sharded(tmp_path):
    save(ours(), tmp_path / "sharded", shard_size=10_000)
    return tmp_path / "sharded"


def change_index(directory, change):
    told = json.loads((directory / INDEX).read_text())
    change(told["weight_map"])
    (directory / INDEX).write_text(json.dumps(told))


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "model.bin", "a\\b.safetensors", ""]
)
def test_an_index_leads_nowhere_but_to_its_own_directory(sharded, name):
    change_index(sharded, lambda at: at.update({"transformer.ln_f.bias": name}))
    with pytest.raises(ValueError, match=r"is no plain name of a \.safetensors file\. Nothing was loaded"):
        load(sharded)


@pytest.mark.parametrize("told", ["{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_places_nothing_is_refused(sharded, told):
    (sharded / INDEX).write_text(told)
    with pytest.raises(ValueError, match=r"weight_map must give a file for every tensor; download it again"):
        load(sharded)


def test_a_shard_that_is_not_there_is_named(sharded):
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ValueError, match=rf"{INDEX}: {shard.name} is not there; download it too"):
        load(sharded)


def test_shards_that_hold_something_else_are_named(sharded):
    first, second, *_ = sorted(sharded.glob("*.safetensors"))
    name = next(iter(load_file(second)))
    change_index(sharded, lambda at: at.update({name: first.name}))
    with pytest.raises(
        ValueError, match=rf"{first.name}: by the index it should hold {name}; download the files again"
    ):
        load(sharded)
    change_index(sharded, lambda at: at.pop(name))
    with pytest.raises(ValueError, match=rf"{second.name}: by the index it should not hold {name}; download"):
        load(sharded)


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


def test_a_name_is_fetched_without_code_or_pickles(gpt2, monkeypatch):
    import huggingface_hub

    asked = []

    def fetch(name, *, allow_patterns):
        asked.append((name, allow_patterns))
        return str(gpt2)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.chdir(gpt2)
    for name in ("somebody/some-model", "gpt2", "gpt2-small"):
        assert GPT.from_pretrained(name).config.vocab_size == 97
    assert [name for name, _ in asked] == ["somebody/some-model", "gpt2", "openai-community/gpt2"]
    assert asked[0][1] == [
        "config.json",
        "generation_config.json",
        "model*.safetensors",
        INDEX,
        "tokenizer.json",
    ]


def test_a_name_that_cannot_be_fetched_says_what_to_do(monkeypatch):
    import huggingface_hub

    def offline(name, **_):
        raise ConnectionError("the network is unreachable.\nlong details")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    wanted = (
        r"^a/b is no directory here and could not be fetched from the Hugging Face Hub \(the network is unreachable\)\. "
        r".*`hf download a/b --local-dir DIRECTORY`\) and give its directory\. Nothing was loaded\.$"
    )
    with pytest.raises(ValueError, match=wanted):
        load("a/b")


def test_a_name_that_is_nearly_a_presets_is_asked_about(monkeypatch):
    import huggingface_hub

    def offline(name, **_):
        raise ConnectionError("the network is unreachable")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ValueError, match=r"Did you mean gpt2-small\? Else look for a mistake in its name, or fetch it"):
        load("gpt2-smal")


def test_the_model_in_the_box_is_float32_unless_told(tmp_path, monkeypatch):
    ours().half().save_pretrained(tmp_path / "tiny")
    monkeypatch.setattr(checkpoint, "BOX", tmp_path / "tiny")
    for name in ("tiny", tmp_path / "tiny"):
        assert load(name).token_embedding.weight.dtype is torch.float32
        assert load(name, dtype=torch.bfloat16).token_embedding.weight.dtype is torch.bfloat16
    monkeypatch.setattr(checkpoint, "BOX", tmp_path / "elsewhere" / "tiny")
    assert load(tmp_path / "tiny").token_embedding.weight.dtype is torch.float16  # a directory like any other
    with pytest.raises(ValueError, match=r"there is no model in the box: .* is missing; install regard again"):
        load("tiny")


def test_what_ends_a_text_is_said_by_generation_config_first(gpt2):
    assert load(gpt2).config.ends == (96,)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": [5, 96, 97]}')
    assert load(gpt2).config.ends == (5, 96)  # there is no token 97
    (gpt2 / "generation_config.json").write_text("{}")
    assert load(gpt2).config.ends == (96,)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id is '</s>'; it must be a token id"):
        load(gpt2)


def test_the_directory_of_a_run_leads_to_its_model(gpt2, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    gpt2.rename(run / "model")
    with pytest.raises(ValueError, match=r"run has no config.json; did you mean .*run/model\? Nothing was loaded"):
        load(run)


def test_the_hub_itself_is_answered_when_offline(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=r"nobody/nothing is no directory here and could not be fetched"):
        load("nobody/nothing")


@pytest.mark.parametrize("name", ["./x", "/no/such/place", "a/b/c", "x/", "~/no-such-place", "../x"])
def test_a_path_that_leads_nowhere_is_not_looked_for_elsewhere(name, monkeypatch):
    monkeypatch.setattr(checkpoint, "_fetched", lambda name: pytest.fail("it asked the hub"))
    with pytest.raises(
        ValueError, match=r"there is no directory .*; look for a mistake in its name\. Nothing was loaded"
    ):
        load(name)


def test_a_path_object_is_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_fetched", lambda name: pytest.fail("it asked the hub"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there is no directory x"):
        load(type(tmp_path)("x"))


def test_a_file_is_no_directory(gpt2):
    with pytest.raises(ValueError, match=r"model.safetensors is a file; give the directory it lies in"):
        load(gpt2 / WHOLE)


def test_an_older_generation_config_does_not_end_the_texts_of_a_new_model(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6], "top_k": 3}')
    model = GPT(GPTConfig(vocab_size=31, context_length=8, num_layers=1, d_model=8, num_heads=2, end=7))
    model.save_pretrained(tmp_path)
    assert GPT.from_pretrained(tmp_path).config.ends == (7,)
