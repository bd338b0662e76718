"""The layer under torch.compile, torch.export and ONNX. Without run-time shape checks, which graphs cannot hold."""

import shutil
import warnings
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import regard
from regard import MultiHeadAttention

# torch's own compiler uses what torch deprecates.
pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

VARIANTS = {
    "plain": {},
    "biases": {"qkv_bias": True},
    "grouped queries": {"num_kv_heads": 2},
    "window": {"window": 3},
    "rotary": {"rotary": True},
    "alibi": {"alibi": True},
    "normed": {"qk_norm": True},
    "not causal": {"causal": False},
}
variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def build(**options) -> MultiHeadAttention:
    return MultiHeadAttention(24, 24, context_length=64, dropout=0.0, num_heads=4, **options)


def compiled(layer):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(layer, backend=counter, fullgraph=True), counter


@variants
def test_seven_lengths_are_one_graph_and_need_no_third_compilation(options):
    layer = build(**options)
    run, counter = compiled(layer)
    for T in (7, 11, 13, 17, 19, 22, 23):
        x = torch.randn(2, T, 24)
        torch.testing.assert_close(run(x), layer(x))
    assert counter.frame_count <= 2  # once for the first length, once for all others


@pytest.mark.parametrize(
    "mask", [torch.tensor([3, 5]), regard.padding([3, 5]), regard.documents([0, 0, 1, 1, 1, 2, 2])]
)
def test_masks_compile_without_a_graph_break(mask):
    layer = build()
    run, _ = compiled(layer)
    x = torch.randn(2, 7, 24)
    torch.testing.assert_close(run(x, mask=mask), layer(x, mask=mask))


def test_the_cache_compiles_without_a_graph_break():
    layer = build(rotary=True).eval()
    run, _ = compiled(layer)
    x = torch.randn(2, 11, 24)
    cache = regard.Cache.of(layer, batch=2)
    with torch.no_grad():
        first = run(x[:, :7], cache=cache[0])
        cache.advance(7)
        last = run(x[:, 7:], cache=cache[0])
        torch.testing.assert_close(torch.cat([first, last], dim=1), layer(x))


@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor builds with a C++ compiler")
def test_compiled_gradients_are_the_eager_ones():
    layer = build(qkv_bias=True)
    torch._dynamo.reset()
    run = torch.compile(layer, fullgraph=True)
    x = torch.randn(2, 13, 24, requires_grad=True)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    eager = torch.autograd.grad(layer(x).square().sum(), [x, *parameters])
    graph = torch.autograd.grad(run(x).square().sum(), [x, *parameters])
    for name, a, b in zip(("x", *names), graph, eager, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_a_compiled_layer_sees_new_weights():
    layer = build()
    run, _ = compiled(layer)
    x = torch.randn(2, 5, 24)
    run(x)
    other = build()
    layer.load_state_dict(other.state_dict(), assign=True)
    torch.testing.assert_close(run(x), other(x))


DYNAMIC = {"x": {0: torch.export.Dim("B", min=1, max=8), 1: torch.export.Dim("T", min=2, max=64)}}


@variants
def test_an_exported_program_serves_other_batches_and_lengths(options):
    layer = build(**options).eval()
    program = torch.export.export(layer, (torch.randn(2, 9, 24),), dynamic_shapes=DYNAMIC).module()
    for B, T in ((3, 17), (1, 64), (5, 2)):
        x = torch.randn(B, T, 24)
        torch.testing.assert_close(program(x), layer(x))


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2, "rotary": True, "qk_norm": True}, {"window": 3}], ids=str)
def test_the_onnx_file_computes_the_same_in_onnxruntime(options, tmp_path: Path):
    layer = build(**options).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own exporter uses what torch deprecates
        program = torch.onnx.export(layer, (torch.randn(2, 9, 24),), dynamo=True, dynamic_shapes=DYNAMIC, verbose=False)
    program.save(tmp_path / "layer.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx")
    for B, T in ((3, 17), (1, 64)):
        x = torch.randn(B, T, 24)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_weights_compile_too(dtype):
    layer = build(qkv_bias=True).to(dtype)
    run, _ = compiled(layer)
    x = torch.randn(2, 7, 24, dtype=dtype)
    found = run(x)
    assert found.dtype is dtype
    torch.testing.assert_close(found, layer(x))


def test_queries_behind_other_keys_need_no_third_compilation():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    run = torch.compile(regard.attend, backend=counter, fullgraph=True)
    for T, S in ((3, 7), (5, 11), (7, 13), (11, 17), (13, 29)):
        q, k, v = torch.randn(2, 3, T, 8), torch.randn(2, 3, S, 8), torch.randn(2, 3, S, 8)
        torch.testing.assert_close(run(q, k, v, mask=regard.causal()), regard.attend(q, k, v, mask=regard.causal()))
    assert counter.frame_count <= 2
