"""scaled_dot_product_attention with every shape and mask that it takes, and the LSE of its kernels."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heads.models import Sdpa, assert_weights, calls, lse_of, watched, weights_of
from regard.attention.masks import CAUSAL, EVERYTHING

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
HIDDEN = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
FUTURE = torch.ones(7, 7).triu(1).bool()


def seen(q, k, **how):
    out, reports = watched(Sdpa(), q, k, **how)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, k, **how))
    return reports[0][2]


@pytest.mark.parametrize("T, S", [(7, 7), (5, 7), (7, 5), (1, 7)])
def test_the_causal_flag_starts_at_the_first_key(T, S):
    q, k = torch.randn(2, 3, T, 8), torch.randn(2, 3, S, 8)
    call = seen(q, k, is_causal=True)
    allowed = torch.ones(T, S).tril().bool()
    expected = (q @ k.mT / 8**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
    assert_weights(call, expected[..., : call.sizes[3]])
    assert call.sizes[3] == min(T, S)
    assert not expected[..., call.sizes[3] :].any()


@pytest.mark.parametrize(
    "shape", [(7, 5), (1, 7, 5), (3, 7, 5), (2, 1, 7, 5), (2, 3, 7, 5), (2, 1, 1, 5), (2, 3, 7, 1)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_every_shape(shape, kind):
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 8)
    mask = torch.rand(shape) > 0.3
    mask[..., 0] = True
    mask = mask if kind == "bool" else torch.randn(shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    bias = mask if kind == "float" else torch.zeros(shape).masked_fill(~mask, -torch.inf)
    assert_weights(seen(q, k, attn_mask=mask), (q @ k.mT / 8**0.5 + bias).softmax(-1))


def test_a_row_of_only_the_lowest_number_is_uniform_as_in_the_model():
    q, k = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 3, 8)
    mask = torch.tensor([[0.0, 0.0, 0.0], [torch.finfo(torch.float32).min] * 3])
    torch.testing.assert_close(weights_of(seen(q, k, attn_mask=mask)).float()[0, 0, 1].sum(), torch.tensor(1.0))


def test_keys_shared_by_heads_stay_shared():
    q, k = torch.randn(2, 6, 7, 8), torch.randn(2, 3, 7, 8)
    call = seen(q, k, enable_gqa=True, scale=0.3)
    assert call.attention.k.shape[1] == 3
    assert_weights(call, (0.3 * q @ k.repeat_interleave(2, 1).mT).softmax(-1))


@pytest.mark.parametrize(
    "q, k, shape",
    [
        ((7, 8), (5, 8), (1, 1, 7, 5)),
        ((2, 7, 8), (2, 5, 8), (2, 1, 7, 5)),
        ((1, 3, 7, 8), (2, 3, 5, 8), (2, 3, 7, 5)),
        ((2, 3, 7, 8), (2, 1, 5, 8), (2, 3, 7, 5)),
        ((2, 1, 7, 8), (2, 3, 5, 8), (2, 3, 7, 5)),
        ((2, 3, 4, 7, 8), (2, 3, 4, 5, 8), (6, 4, 7, 5)),
        ((2, 1, 4, 7, 8), (1, 3, 4, 5, 8), (6, 4, 7, 5)),
    ],
    ids=str,
)
def test_axes_are_brought_to_four(q, k, shape):
    q, k = torch.randn(q), torch.randn(k)
    call = seen(q, k)
    assert call.sizes == shape
    assert_weights(call, (q @ k.mT / 8**0.5).softmax(-1).reshape(shape))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [1, 33, 65])
def test_the_lse_is_that_of_the_scores(T, causal):
    q, k = torch.randn(2, 3, T, 16), torch.randn(2, 3, 65, 16)
    call = seen(q, k, is_causal=causal)
    assert call.attention.mask is (CAUSAL if causal else EVERYTHING)
    torch.testing.assert_close(call.lse.double(), lse_of(call), rtol=0, atol=1e-5)


def test_there_is_no_lse_where_a_row_may_see_nothing():
    q = torch.randn(2, 3, 7, 16)
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[3] = False
    assert seen(q, q, attn_mask=torch.ones(7, 7, dtype=torch.bool)).lse is None
    assert watched(Sdpa(), q, q, attn_mask=mask)[1][0][2].lse is None


def test_a_key_that_nobody_sees_is_padding():
    q = torch.randn(2, 3, 7, 16)
    call = seen(q, q, attn_mask=~(HIDDEN[:, None, None] | FUTURE))
    assert torch.equal(call.origin.real, ~HIDDEN)
    assert torch.equal(seen(q, q, attn_mask=~HIDDEN[:, None, None]).origin.real, ~HIDDEN)


def test_the_masks_of_torch_nn_attention_bias():
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)
    for made, shift in ((causal_upper_left, 0), (causal_lower_right, 2)):
        (call,) = calls(watched(Sdpa(), q, k, attn_mask=made(5, 7))[1])
        allowed = torch.ones(5, 7).tril(shift).bool()
        expected = (q @ k.mT / 8**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
        assert_weights(call, expected[..., : call.sizes[3]])


def test_autocast_is_part_of_what_the_model_computes():
    q = torch.randn(2, 3, 7, 16)
    with torch.autocast("cpu", torch.bfloat16):
        call = seen(q, q)
    assert call.attention.q.dtype is torch.bfloat16
    assert_weights(call, (q.bfloat16().double() @ q.bfloat16().double().mT / 4).softmax(-1))


@torch.no_grad()
def test_texts_of_different_lengths_without_padding():
    texts = [torch.randn(n, 3, 16) for n in (7, 4)]
    q = torch.nested.nested_tensor(texts, layout=torch.jagged).transpose(1, 2)
    (call,) = calls(watched(Sdpa(), q, q)[1])
    expected = torch.zeros(2, 3, 7, 7)
    for b, text in enumerate(t.transpose(0, 1) for t in texts):
        n = text.shape[1]
        expected[b, :, :n, :n] = (text @ text.mT / 4).softmax(-1)
    assert_weights(call, expected)
    assert call.origin.real.sum(-1).tolist() == [7, 4]


def test_the_operator_itself_is_seen():
    class Exported(nn.Module):
        def forward(self, q):
            return torch.ops.aten.scaled_dot_product_attention.default(q, q, q, is_causal=True)

    q = torch.randn(2, 3, 7, 16)
    (call,) = calls(watched(Exported(), q)[1])
    assert_weights(call, (q @ q.mT / 4).masked_fill(FUTURE, -torch.inf).softmax(-1))


@torch.no_grad()
def test_groups_of_heads_with_a_mask_of_five_axes():
    class Groups(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(20, 20), nn.Linear(20, 10)

        def forward(self, x):
            q = self.q(x).view(1, 7, 2, 2, 5).permute(0, 2, 3, 1, 4)
            k = self.k(x).view(1, 7, 2, 1, 5).permute(0, 2, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, k, attn_mask=~FUTURE[None, None, None])

    model, x = Groups(), torch.randn(1, 7, 20)
    (call,) = calls(watched(model, x)[1])
    q, k = model.q(x).view(7, 4, 5).transpose(0, 1), model.k(x).view(7, 2, 5).transpose(0, 1).repeat_interleave(2, 0)
    assert_weights(call, (q @ k.mT * 5**-0.5).masked_fill(FUTURE, -torch.inf).softmax(-1)[None])
