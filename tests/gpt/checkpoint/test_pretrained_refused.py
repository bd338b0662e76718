"""Directories that cannot be loaded: what is wrong is said, and nothing is half loaded."""

import json

import pytest
import torch

from gpt.directories import rewrite
from regard import GPT
from regard.gpt.checkpoint.stored_tensors import SINGLE

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_dtype_that_nothing_can_be_computed_in_is_refused(gpt2, dtype):
    with pytest.raises(ValueError, match=rf"dtype \({dtype}\) must be one of torch.float64, .* Nothing was loaded"):
        GPT.from_pretrained(gpt2, dtype=dtype)


def test_tensors_of_several_dtypes_need_a_word(gpt2):
    rewrite(gpt2, lambda tensors: tensors.update({"transformer.ln_f.bias": torch.zeros(21, dtype=torch.float16)}))
    with pytest.raises(
        ValueError, match=r"several dtypes, 27 of torch.float32, 1 of torch.float16; choose one with dtype="
    ):
        GPT.from_pretrained(gpt2)
    assert GPT.from_pretrained(gpt2, dtype=torch.float32).head_weight.dtype is torch.float32


def test_a_billion_layers_are_refused_before_one_is_built(gpt2):
    told = json.loads((gpt2 / "config.json").read_text())
    (gpt2 / "config.json").write_text(json.dumps({**told, "n_layer": 10**9}))
    with pytest.raises(ValueError, match=r"1000000000 layers cannot be made of the 28 tensors in model.safetensors"):
        GPT.from_pretrained(gpt2)


def test_a_truncated_file_is_refused(gpt2):
    whole = (gpt2 / SINGLE).read_bytes()
    (gpt2 / SINGLE).write_bytes(whole[:-1])
    with pytest.raises(
        ValueError, match=r"download it again: the file is shorter than its header says\. Nothing was loaded"
    ):
        GPT.from_pretrained(gpt2)


def test_a_directory_without_a_config_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no config.json; is it the directory of a model\? Nothing was loaded"):
        GPT.from_pretrained(tmp_path)


def test_a_config_that_is_not_understood_is_named_with_its_path(gpt2):
    (gpt2 / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match=rf"{gpt2}/config.json: model_type is 'bert'; .*Nothing was loaded"):
        GPT.from_pretrained(gpt2)
