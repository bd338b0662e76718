"""Files whose tensors do not fit the model: each problem is named, and nothing is loaded."""

import json
import re
import struct

import pytest
import torch
from safetensors.torch import load_file

from gpt.directories import change_index, rewrite, theirs
from regard import GPT, GPTConfig
from regard.gpt.checkpoint.stored_tensors import INDEX, SINGLE
from regard.gpt.checkpoint.weight_names import places_in_file

transformers = pytest.importorskip("transformers")


def test_a_tied_head_that_differs_is_refused(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(97, 21)}))
    with pytest.raises(
        ValueError, match=r"lm_head.weight and transformer.wte.weight differ.*tie_word_embeddings to false"
    ):
        GPT.from_pretrained(gpt2)


def test_the_same_tensor_with_and_without_prefix_is_refused(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"ln_f.bias": torch.zeros(21)}))
    with pytest.raises(
        ValueError, match=r"(ln_f.bias and transformer|transformer.ln_f.bias and ln_f).* one and the same"
    ):
        GPT.from_pretrained(gpt2)


def test_a_misshapen_tensor_of_gpt2_small_is_named_and_nothing_is_read(tmp_path):
    config = GPTConfig.preset("gpt2-small")
    shapes = {place.name: place.shape for place in places_in_file(config, "gpt2").values()}
    shapes["h.3.attn.c_attn.weight"] = (768, 2300)
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * torch.Size(shape).numel()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    with (tmp_path / SINGLE).open("wb") as file:  # sparse: half a gigabyte that takes no place
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)
    told = transformers.GPT2Config().to_dict()
    (tmp_path / "config.json").write_text(json.dumps(told))
    wanted = (
        "model.safetensors: h.3.attn.c_attn.weight is (768, 2300); gpt2-small needs (768, 2304). Nothing was loaded."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        GPT.from_pretrained(tmp_path)


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
        GPT.from_pretrained(gpt2)


def test_a_strangers_names_do_not_reach_the_terminal_as_they_are(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"\x1b[2J" + "x" * 1000: torch.zeros(1)}))
    with pytest.raises(ValueError, match=r"safetensors: \\x1b\[2Jx{50,80}… is not part of config.json\. Nothing"):
        GPT.from_pretrained(gpt2)


def test_a_long_list_is_cut_after_ten(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({f"extra.{i:02}": torch.zeros(1) for i in range(17)}))
    with pytest.raises(
        ValueError, match=r"17 tensors do not fit\.\n(  extra.\d\d is not .*\n){10}  and 7 more\nNothing"
    ):
        GPT.from_pretrained(gpt2)


def test_an_untied_head_that_is_missing_is_named(tmp_path):
    theirs("llama").save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ValueError, match=r"lm_head.weight is missing; config.json needs it, \(97, 60\)"):
        GPT.from_pretrained(tmp_path)


def test_a_directory_without_weights_is_refused(gpt2):
    (gpt2 / SINGLE).unlink()
    with pytest.raises(ValueError, match=rf"has neither model.safetensors nor {INDEX}; is it the directory of a model"):
        GPT.from_pretrained(gpt2)


def test_pickles_are_refused_with_the_way_to_convert_them(gpt2):
    (gpt2 / SINGLE).rename(gpt2 / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"holds pytorch_model.bin .*runs whatever code.*convert it with transformers: Auto"
    ):
        GPT.from_pretrained(gpt2)


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        "model.bin",
        "a\\b.safetensors",
        "",
        "é" * 130 + ".safetensors",
    ],
)
def test_an_index_leads_nowhere_but_to_its_own_directory(sharded, name):
    change_index(sharded, lambda at: at.update({"transformer.ln_f.bias": name}))
    with pytest.raises(ValueError, match=r"is no plain name of a \.safetensors file\. Nothing was loaded"):
        GPT.from_pretrained(sharded)


@pytest.mark.parametrize("told", ["{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_places_nothing_is_refused(sharded, told):
    (sharded / INDEX).write_text(told)
    with pytest.raises(ValueError, match=r"weight_map must give a file for every tensor; download it again"):
        GPT.from_pretrained(sharded)


def test_a_shard_that_is_not_there_is_named(sharded):
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ValueError, match=rf"{INDEX}: {shard.name} is not there; download it too"):
        GPT.from_pretrained(sharded)


def test_shards_that_hold_something_else_are_named(sharded):
    first, second, *_ = sorted(sharded.glob("*.safetensors"))
    name = next(iter(load_file(second)))
    change_index(sharded, lambda at: at.update({name: first.name}))
    with pytest.raises(
        ValueError, match=rf"{first.name}: by the index it should hold {name}; download the files again"
    ):
        GPT.from_pretrained(sharded)
    change_index(sharded, lambda at: at.pop(name))
    with pytest.raises(ValueError, match=rf"{second.name}: by the index it should not hold {name}; download"):
        GPT.from_pretrained(sharded)


@pytest.mark.parametrize("name", ["lm_head.weight", "blocks.0.attn.bias"])
def test_a_file_of_ours_holds_no_tensor_of_others(tmp_path, name):
    model = GPT(GPTConfig(53, 29, 2, 24, 3, qk_norm=True))
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regard"
    rewrite(tmp_path, lambda tensors: tensors.update({name: model.token_embedding.weight.detach().clone()}))
    with pytest.raises(ValueError, match=f"{name} is not part of config.json"):
        GPT.from_pretrained(tmp_path)
