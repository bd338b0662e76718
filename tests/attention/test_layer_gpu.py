"""What only a GPU can show; benchmarks/check_gpu.py is the first of it without pytest."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import MultiHeadAttention

pytestmark = pytest.mark.gpu


def new_layer() -> MultiHeadAttention:
    return MultiHeadAttention(48, 64, context_length=32, dropout=0.0, num_heads=4).cuda()


def gradients(layer, x):
    return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])


def assert_same(found, right):
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_every_path_is_as_exact_on_the_gpu_as_pytorchs_own():
    script = Path(__file__).parents[2] / "benchmarks" / "check_gpu.py"
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_step_goes_on_any_stream_and_into_a_cuda_graph():
    layer, x = new_layer(), torch.randn(2, 32, 48, device="cuda", requires_grad=True)
    right = gradients(copy.deepcopy(layer), x)
    assert_same(gradients(layer, x), right)  # nothing may be left behind that ties later steps to this stream
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = gradients(layer, x)
    torch.cuda.current_stream().wait_stream(side)
    assert_same(found, right)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = gradients(layer, x)
    with torch.no_grad():
        x.mul_(0.5)
    graph.replay()
    assert_same(found, gradients(copy.deepcopy(layer), x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wanted", [True, False])
def test_a_compiled_layer_uses_new_weights(wanted):
    layer = new_layer()
    run = torch.compile(layer, fullgraph=True)
    for _ in range(2):
        x = torch.randn(2, 32, 48, device="cuda", requires_grad=wanted)
        leaves = [*([x] if wanted else []), *layer.parameters()]
        plain = copy.deepcopy(layer)
        twin = [*([x] if wanted else []), *plain.parameters()]
        out, right = run(x), plain(x)
        assert_same([out], [right])
        assert_same(torch.autograd.grad(out.square().sum(), leaves), torch.autograd.grad(right.square().sum(), twin))
        with torch.no_grad():
            layer.W_key.weight.data = torch.randn_like(layer.W_key.weight) * 0.1
