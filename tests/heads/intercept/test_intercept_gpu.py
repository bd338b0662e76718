"""On the GPU: asking a kernel for its LSE changes nothing it computes, and the LSE is right."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from heads.made_calls import moved_call
from heads.models import Sdpa, assert_weights, lse_of, watched, weights_of

pytestmark = pytest.mark.gpu
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [2, 63, 192, 1000])  # cuDNN takes no single key
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_lse_is_right_and_the_output_the_same(kernel, causal, T, D, dtype):
    q, k = torch.randn(2, 3, T, D, device="cuda", dtype=dtype), torch.randn(2, 3, T, D, device="cuda", dtype=dtype)
    with sdpa_kernel(KERNELS[kernel]):
        unwatched = F.scaled_dot_product_attention(q, k, k, is_causal=causal)
        out, reports = watched(Sdpa(), q, k, is_causal=causal)
    assert torch.equal(out, unwatched)
    call = moved_call(reports[0][2], "cpu")
    assert call.lse is not None
    torch.testing.assert_close(call.lse.double(), lse_of(call), rtol=0, atol=2e-3 if kernel == "efficient" else 1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_training_draws_the_same_numbers_and_gradients(kernel):
    found = []
    for look in (False, True):
        torch.manual_seed(1)
        q = torch.randn(2, 3, 192, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        with sdpa_kernel(KERNELS[kernel]):
            out = watched(Sdpa(), q, q, dropout_p=0.3)[0] if look else Sdpa()(q, q, dropout_p=0.3)
        found.append((out, *torch.autograd.grad(out.square().sum(), q)))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:Converting mask without torch.bool:UserWarning")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_the_fast_path_of_an_encoder(norm_first, padded):
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).cuda().eval()
    x = torch.randn(2, 7, 64, device="cuda")
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3], device="cuda") if padded else None
    unwatched = model(x, src_key_padding_mask=hidden)
    out, reports = watched(model, x, src_key_padding_mask=hidden)
    assert torch.equal(out, unwatched)
    on_cpu = model.cpu().double().train()  # the slow path
    for module in on_cpu.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    _, expected = watched(on_cpu, x.cpu().double(), src_key_padding_mask=None if hidden is None else hidden.cpu())
    for (_, _, call), (_, _, slow) in zip(reports, expected, strict=True):
        assert call.origin.module == slow.origin.module
        assert_weights(moved_call(call, "cpu"), weights_of(slow))
