"""Single Triton kernels against torch, run by Triton's interpreter without a GPU.

TRITON_INTERPRET=1 pytest, the third command of `make test`
"""

import os

import pytest
import torch
import torch.nn.functional as F

from regard.gpt.activations import ACTIVATIONS

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
kernels = pytest.importorskip("regard.gpt.generate.gpu_kernels")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy overflows in exp, as it may

K = 19
SIZES = [(24, 24, 24), (24, 8, 8), (37, 11, 11), (5, 3, 3)]  # queries, keys, values; blocks hold 8 or 16


def separate_weights(sizes):
    """Weights and biases in memory of their own, surrounded by NaN that no kernel may read."""

    def alone(*shape):
        memory = torch.full((shape[0] + 2, *shape[1:]), float("nan"))
        memory[1:-1] = torch.randn(shape)
        return memory[1:-1]

    return [alone(n, K) for n in sizes], [alone(n) for n in sizes]


def run_linear_one(x, weights, biases, out, *, gate=None, activation="none", programs=3):
    gate_weight, gate_bias = (x, x) if gate is None else gate
    kernels.linear_one[(programs,)](
        x, *weights, gate_weight, *biases, gate_bias, x, x, out, x, x, len(weights[0]), len(weights[-1]), 0.0,
        K=K, BN=8, BK=32, NORM="none", NORM_BIAS=False, ACTIVATION=activation, GATED=gate is not None,
        THREE=weights[0] is not weights[-1], BIAS=True, ADD=False, BEST=False, EARLY=False,
    )  # fmt: skip


def run_linear_some(x, weights, biases, out, *, gate=None, activation="none"):
    gate_weight, gate_bias = (x, x) if gate is None else gate
    three = weights[0] is not weights[-1]
    blocks = sum(-(-len(w) // 16) for w in (weights if three else weights[:1]))
    kernels.linear_some[(blocks, 1)](
        x, *weights, gate_weight, *biases, gate_bias, out, x, x, len(x), len(weights[0]), len(weights[-1]),
        K=K, BB=16, BN=16, BK=16, PARTS=1, ACTIVATION=activation, GATED=gate is not None, THREE=three, BIAS=True,
        BEST=False, EARLY=False, PRECISION="ieee",
    )  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("programs", [1, 3, 100])
def test_one_row_is_projected_by_three_weights_in_separate_memory(sizes, programs):
    (weights, biases), x, out = separate_weights(sizes), torch.randn(1, K), torch.empty(1, sum(sizes))
    run_linear_one(x, weights, biases, out, programs=programs)
    torch.testing.assert_close(out, F.linear(x, torch.cat(weights), torch.cat(biases)))


@pytest.mark.parametrize("sizes", SIZES)
def test_several_rows_are_projected_by_three_weights_in_separate_memory(sizes):
    (weights, biases), x, out = separate_weights(sizes), torch.randn(5, K), torch.empty(5, sum(sizes))
    run_linear_some(x, weights, biases, out)
    torch.testing.assert_close(out, F.linear(x, torch.cat(weights), torch.cat(biases)))


@pytest.mark.parametrize("run, rows", [(run_linear_one, 1), (run_linear_some, 3)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_the_one_of_the_modules(name, run, rows):
    activation, x, out = ACTIVATIONS[name], 3 * torch.randn(rows, K), torch.empty(rows, 29)
    (weight, gate), (bias, gate_bias) = separate_weights((29, 29))
    y = F.linear(x, weight, bias)
    if activation.gated:
        run(x, [weight] * 3, [bias] * 3, out, gate=(gate, gate_bias), activation=activation.name)
        expected = activation.function(F.linear(x, gate, gate_bias)) * y
    else:
        run(x, [weight] * 3, [bias] * 3, out, activation=activation.name)
        expected = activation.function(y)
    torch.testing.assert_close(out, expected)


def test_an_activation_without_an_expression_is_an_error():
    (weight,), (bias,) = separate_weights((29,))
    x, out = torch.randn(1, K), torch.empty(1, 29)
    with pytest.raises(Exception, match="this activation has no expression here"):
        run_linear_one(x, [weight] * 3, [bias] * 3, out, activation="relu")
