"""Directories that cannot be loaded: what is wrong is said, and nothing is half loaded."""

import json

import pytest
import torch
from safetensors.torch import save_file

from gpt.directories import rewrite
from regard import GPT, GPTConfig, Rotary
from regard.gpt.block import Block
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


OURS = {"vocab_size": 5, "context_length": 7, "num_layers": 2, "d_model": 4, "num_heads": 2, "rotary": {"base": 1e4}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 10**18}, r"d_model is 1000000000000000000; it must be below 2³¹"),
        ({"d_model": 2**31 - 1, "num_heads": 7}, r"d_out \(2147483647\) must be divisible by num_heads \(7\)"),
        ({"d_model": 2**30, "d_ff": 2**31 - 1}, r"tensors do not fit\.\n  blocks"),
        ({"num_layers": 10**9}, r"1000000000 layers cannot be made of the \d+ tensors"),
        (
            {"num_kv_heads": 2**30},
            r"blocks\.0\.attention\.W_key\.weight is \(4, 4\); config.json needs \(2147483648, 4\)",
        ),
        ({"window": -3}, r"config.json: window \(-3\) must be a whole number of at least 1"),
        ({"window": 2**40}, r"window is 1099511627776; it must be below 2³¹"),
        (
            {"\x1b]0;title\x07" * 99: 1},
            r"config.json: (\\x1b\]0;title\\x07)+.{0,20}… is 1; this version of regard does not",
        ),
        ({"norm": "\x1b[2J" * 99}, r"norm is '(\\x1b\[2J)+.{0,20}…; it must be one of"),
    ],
)
def test_absurd_sizes_of_our_own_kind_are_refused_at_once(tmp_path, change, message):
    config = GPTConfig(**{**OURS, "rotary": Rotary(1e4)})
    GPT(config).save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["model_type"] == "regard"
    (tmp_path / "config.json").write_text(json.dumps(told | change))
    with pytest.raises(ValueError, match=message) as error:
        GPT.from_pretrained(tmp_path)
    assert "\x1b" not in str(error.value)
    assert str(error.value).endswith("Nothing was loaded.")


def test_ten_thousand_empty_tensors_are_counted_and_no_block_is_built(tmp_path, monkeypatch):
    def built(*_):
        raise AssertionError("a block was built")

    monkeypatch.setattr(Block, "__init__", built)
    save_file({f"t{i}": torch.zeros(0) for i in range(10_000)}, tmp_path / SINGLE)
    told = {"model_type": "regard", **OURS, "num_layers": 10_000}
    (tmp_path / "config.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"10000 layers cannot be made of the 10000 tensors in model.safetensors"):
        GPT.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(told | {"num_layers": 100}))
    with pytest.raises(ValueError, match=r"11603 tensors do not fit"):
        GPT.from_pretrained(tmp_path)


def test_what_the_library_refuses_is_refused_in_our_words(gpt2):
    whole = (gpt2 / SINGLE).read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end]) | {"h.\ud800.attn.bias": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}
    raw = json.dumps(header).encode()  # half of a surrogate pair is JSON, but no text
    (gpt2 / SINGLE).write_bytes(len(raw).to_bytes(8, "little") + raw + whole[end:])
    with pytest.raises(ValueError, match=r"model.safetensors: safetensors cannot read it: .* Nothing was loaded\."):
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
