"""The Triton rows of cross-entropy against torch: run by Triton's interpreter, without a GPU.

TRITON_INTERPRET=1 pytest, the third command of `make test`
"""

import os

import pytest
import torch
import torch.nn.functional as F

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
kernel = pytest.importorskip("regard.gpt.cross_entropy_kernel")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy meets infinities


def case(N=11, V=37, W=64, dtype=torch.float32):
    logits = (3 * torch.randn(N, W)).to(dtype)
    logits[:, V:] = 1e4  # whatever stands in the padding must not matter
    targets = torch.randint(V, (N,))
    targets[4] = -1
    targets[5], targets[6] = 0, V - 1
    return logits, targets, torch.full((N,), torch.nan)


@pytest.mark.parametrize("BLOCK", [8, 16, 64])
@pytest.mark.parametrize("V, W", [(37, 64), (64, 64), (37, 37)], ids=str)
@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-5), (torch.bfloat16, 4e-3)], ids=str)
def test_losses_and_gradients_are_those_of_cross_entropy(V, W, dtype, close, BLOCK):
    logits, targets, losses = case(V=V, W=W, dtype=dtype)
    wide = logits[:, :V].double().requires_grad_()
    right = F.cross_entropy(wide, targets, ignore_index=-1, reduction="none")
    kernel.cross_entropy_(logits, targets, losses, V, grads=True, BLOCK=BLOCK)
    torch.testing.assert_close(losses.double(), right.detach(), rtol=1e-5, atol=1e-5)
    grad = torch.autograd.grad(right.sum(), wide)[0]
    torch.testing.assert_close(logits[:, :V].double(), grad, rtol=close, atol=close)
    assert (logits[:, V:] == 0).all()


def test_without_gradients_the_logits_stay():
    logits, targets, losses = case()
    before = logits.clone()
    kernel.cross_entropy_(logits, targets, losses, 37, grads=False)
    assert logits.equal(before)
    torch.testing.assert_close(losses, F.cross_entropy(before[:, :37], targets, ignore_index=-1, reduction="none"))


def test_rows_may_lie_apart():
    logits, targets, losses = case()
    wide = torch.zeros(11, 100)
    wide[:, :64] = logits
    kernel.cross_entropy_(wide[:, :64], targets, losses, 37, grads=True)
    kernel.cross_entropy_(logits, targets, torch.empty(11), 37, grads=True)
    assert wide[:, :64].equal(logits)
    assert (wide[:, 64:] == 0).all()


def test_large_logits_do_not_overflow():
    logits, targets, losses = case()
    logits[:, :37] = logits[:, :37] * 1e3 + 1e5
    right = F.cross_entropy(logits[:, :37].double(), targets, ignore_index=-1, reduction="none")
    kernel.cross_entropy_(logits, targets, losses, 37, grads=True, BLOCK=8)
    torch.testing.assert_close(losses.double(), right, rtol=1e-4, atol=5e-2)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_a_number_shows(bad):
    logits, targets, losses = case()
    logits[2, 20] = bad
    kernel.cross_entropy_(logits, targets, losses, 37, grads=True, BLOCK=8)
    assert losses.isnan().tolist() == [row == 2 for row in range(11)]


def test_a_target_past_the_vocabulary_is_no_number():
    logits, targets, losses = case()
    targets[7] = 37
    kernel.cross_entropy_(logits, targets, losses, 37, grads=False)
    assert losses.isnan().tolist() == [row == 7 for row in range(11)]


def test_no_rows_at_all():
    losses = torch.empty(0)
    kernel.cross_entropy_(torch.empty(0, 64), torch.empty(0, dtype=torch.int64), losses, 37, grads=True)
    assert losses.shape == (0,)
