"""explain(): the way attention takes, the kernel that runs, and why not a faster one."""

import pytest
import torch
from torch import nn

import regard
from regard import documents, padding


def new_layer(**options):
    return regard.MultiHeadAttention(
        **{"d_in": 6, "d_out": 6, "context_length": 11, "dropout": 0.0, "num_heads": 3} | options
    )


def test_explain_says_the_path_the_kernel_and_why():
    said = regard.explain(new_layer(), torch.randn(2, 5, 6), mask=documents([0, 0, 1, 1, 1]))
    assert said.path == "tiled"
    assert "tiled · B=2 H=3 T=5 S=5 D=2 float32 on cpu" in str(said)
    assert "why     documents is written out in tiles: no fused kernel of SDPA knows it" in str(said)


def test_explain_of_a_module_without_our_attention_says_so():
    with pytest.raises(ValueError, match=r"Linear made no call of regard.attend\(\); .* regard.adopt\(module\)"):
        regard.explain(nn.Linear(3, 2), torch.randn(5, 3))


@pytest.mark.parametrize(
    ("options", "call", "path", "kernel"),
    [
        ({}, {}, "fused causal", "flash attention"),
        ({"causal": False}, {}, "fused", "flash attention"),
        ({"causal": False}, {"mask": padding([5, 3])}, "fused, key mask", "flash attention"),
        ({}, {"mask": padding([5, 3])}, "fused causal, key mask", "flash attention"),
        ({}, {"return_weights": True}, "in steps", "plain tensor operations"),
    ],
    ids=["causal", "free", "lengths", "causal lengths", "weights"],
)
def test_each_way_names_its_kernel(options, call, path, kernel):
    said = regard.explain(new_layer(**options), torch.randn(2, 5, 6), **call)
    assert said.path == path
    assert kernel in str(said)


def test_dropout_inside_a_model_in_training_is_told_with_the_way_out():
    model = nn.Sequential(new_layer(dropout=0.5), nn.Linear(6, 6))
    assert "the CPU's fused kernel has no dropout; call .eval()" in str(
        regard.explain(model.train(), torch.randn(2, 5, 6))
    )
    assert "flash attention" in str(regard.explain(model.eval(), torch.randn(2, 5, 6)))


def test_every_call_of_a_model_is_told():
    model = nn.Sequential(new_layer(), new_layer(causal=False))
    said = regard.explain(model, torch.randn(2, 5, 6))
    assert [path.name for path, _, _ in said.calls] == ["fused causal", "fused"]
