"""The guard of every way to load a model: layers, weights and buffers beyond the files, and numbers that are none."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from gpt.directories import rewrite
from regard import GPT
from regard.gpt.checkpoint.model_checks import check_counts, check_finite, check_layers, no_more_than
from regard.gpt.checkpoint.stored_tensors import Stored, StoredTensor

WHERE = Path("somewhere/model.safetensors")


def stored(*shapes, dtype=torch.float32):
    return {str(i): StoredTensor(WHERE, str(i), Stored(dtype, shape)) for i, shape in enumerate(shapes)}


def test_layers_that_tensors_can_make_pass():
    check_layers(207, 28, 4, "n_layer", WHERE)
    message = r"^somewhere/config\.json: 208 layers cannot be made of the 28 tensors in model\.safetensors \(n_layer\)"
    with pytest.raises(ValueError, match=message):
        check_layers(208, 28, 4, "n_layer", WHERE)


@pytest.mark.parametrize(
    "name",
    ["n_layer", "num_hidden_layers", "encoder_layers", "layers", "depth", "num_blocks", "first_k_dense_replace"],
)
def test_counts_are_found_wherever_they_are(name):
    for content in ({name: 999}, {"text_config": {name: 999}}, {"parts": [{name: 999.0}]}):
        with pytest.raises(ValueError, match=rf"999(\.0)? layers cannot be made of .* \({name}\)"):
            check_counts(content, 28, WHERE)
    check_counts({name: 12, "text_config": {name: 24}}, 28, WHERE)


def test_other_sizes_are_no_counts():
    check_counts(
        {"vocab_size_per_layer_input": 262_144, "use_layers": True, "num_labels": 99_999, "layers": [5_000] * 3,
         "hidden_size_per_layer": 4096, "layer_norm_eps": 1e9}, 28, WHERE,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"num_labels is 100001; it must be at most 100,000"):
        check_counts({"num_labels": 100_001}, 28, WHERE)


class Buffered(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        for i, size in enumerate(sizes):
            self.register_buffer(f"b{i}", torch.empty(size, dtype=torch.uint8, device="meta"))


@pytest.mark.parametrize(
    ("build", "fits"),
    [
        (lambda: nn.Linear(3000, 1000, device="meta"), True),
        (lambda: nn.Linear(3000, 5000, device="meta"), False),
        (lambda: [nn.Linear(1, 1) for _ in range(1000)], True),
        (lambda: [nn.Linear(1, 1) for _ in range(1010)], False),
        (lambda: Buffered(30 << 20), True),
        (lambda: Buffered(20 << 20, 20 << 20), False),
    ],
)
def test_a_model_is_built_of_no_more_than_its_files_hold(build, fits):
    tensors = stored((11, 13), (17,))
    if fits:
        with no_more_than(tensors, WHERE):
            build()
        return
    message = (
        r"config\.json needs more than the 2 tensors in model\.safetensors can be, such as .* of (Linear|Buffered)"
    )
    with pytest.raises(ValueError, match=message), no_more_than(tensors, WHERE):
        build()
    build()  # elsewhere all is as before


def test_weights_that_are_set_again_count_once():
    layer = nn.Linear(2000, 1000, device="meta")
    with no_more_than(stored((7,)), WHERE):
        for _ in range(5):
            layer.weight = nn.Parameter(torch.empty(1000, 2000, device="meta"))


def test_packed_weights_are_more_than_their_elements():
    tensors = stored((1000, 700), dtype=torch.int32)
    with no_more_than(tensors, WHERE, packed=True):
        nn.Linear(1000, 8 * 700, device="meta")
    with pytest.raises(ValueError, match="needs more than"), no_more_than(tensors, WHERE):
        nn.Linear(1000, 8 * 700, device="meta")


def test_other_threads_build_what_they_like():
    thread = threading.Thread(target=lambda: built.append(nn.Linear(5000, 5000, device="meta")))
    built = []
    with no_more_than(stored((7,)), WHERE):
        thread.start()
        thread.join()
    assert len(built) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_no_numbers_are_named(dtype, wrong):
    weights = {"a": torch.ones(3, 5, dtype=dtype), "b": torch.ones(7, dtype=dtype), "none": torch.ones(0, dtype=dtype)}
    check_finite(weights | {"ids": torch.tensor([3])}, WHERE)
    weights["b"][4] = wrong
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=rf"model\.safetensors: b holds NaN or infinite numbers in {name};"):
        check_finite(weights, WHERE)
    weights["a"][2, 1] = wrong
    with pytest.raises(ValueError, match="a, b hold NaN or infinite numbers"):
        check_finite(weights, WHERE)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_gpt_with_a_number_that_is_none_does_not_load(gpt2, wrong):
    rewrite(gpt2, lambda tensors: tensors["transformer.h.1.attn.c_attn.weight"][3, 5].fill_(wrong))
    with pytest.raises(ValueError, match=r"blocks\.1\.attention\.W_query\.weight holds NaN or infinite numbers"):
        GPT.from_pretrained(gpt2)


def test_a_number_that_is_too_large_for_a_dtype_is_told(gpt2):
    rewrite(gpt2, lambda tensors: tensors["transformer.ln_f.bias"].fill_(1e30))
    assert GPT.from_pretrained(gpt2).final_norm.bias[0] == 1e30
    with pytest.raises(ValueError, match=r"final_norm\.bias holds NaN or infinite numbers in float16"):
        GPT.from_pretrained(gpt2, dtype=torch.float16)
