"""The loss in chunks against torch's own cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from helpers import says_it_ourselves
from regard.gpt import GPT, GPTConfig, loss
from regard.gpt.loss import next_token_loss, rows_at_a_time

N, E, V = 23, 11, 37


def random_case(dtype=torch.float64, ignored=(3, 17)):
    x = torch.randn(N, E, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, E, dtype=dtype, requires_grad=True)
    targets = torch.randint(V, (N,))
    targets[list(ignored)] = -1
    return x, weight, targets


def by_torch(x, weight, targets):
    return F.cross_entropy((x @ weight.mT).double(), targets, ignore_index=-1)


@pytest.mark.parametrize("chunk", [1, 7, 22, 23, 24, None])
@pytest.mark.parametrize("ignored", [(), (3, 17)], ids=str)
def test_value_and_gradients_are_those_of_cross_entropy(chunk, ignored):
    x, weight, targets = random_case(ignored=ignored)
    result, right = next_token_loss(x, weight, targets, chunk), by_torch(x, weight, targets)
    torch.testing.assert_close(result, right)
    grads = torch.autograd.grad(result * 3, (x, weight))
    for one, other in zip(grads, torch.autograd.grad(right * 3, (x, weight)), strict=True):
        torch.testing.assert_close(one, other)


def test_gradcheck_agrees():
    x, weight, targets = random_case()
    assert torch.autograd.gradcheck(lambda x, weight: next_token_loss(x, weight, targets, 7), (x, weight))


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_what_needs_no_gradient_gets_none(frozen):
    x, weight, targets = random_case()
    x.requires_grad_(frozen != "x")
    weight.requires_grad_(frozen != "weight")
    next_token_loss(x, weight, targets, 7).backward()
    right = by_torch(x, weight, targets)
    needed = weight if frozen == "x" else x
    torch.testing.assert_close(needed.grad, torch.autograd.grad(right, needed)[0])
    assert (x if frozen == "x" else weight).grad is None


def test_a_tied_weight_gets_both_of_its_gradients():
    _, weight, targets = random_case()
    ids = torch.randint(V, (N,))
    result = torch.autograd.grad(next_token_loss(weight[ids].tanh(), weight, targets, 7), weight)
    right = torch.autograd.grad(by_torch(weight[ids].tanh(), weight, targets), weight)
    torch.testing.assert_close(result, right)


def test_without_gradients_only_the_loss_is_made():
    x, weight, targets = random_case()
    with torch.no_grad():
        torch.testing.assert_close(next_token_loss(x, weight, targets, 7), by_torch(x, weight, targets))
        assert all(len(t) == 0 for t in loss.in_chunks(x, weight, targets, 7, False)[1:3])


@pytest.mark.parametrize("by_autocast", [False, True])
def test_bfloat16_errs_no_more_than_twice_as_much_as_torch(by_autocast):
    x, weight, targets = random_case(torch.float32)
    if not by_autocast:
        x, weight = (t.detach().bfloat16().requires_grad_() for t in (x, weight))
    wide = [t.detach().double().requires_grad_() for t in (x, weight)]
    right = torch.autograd.grad(by_torch(*wide, targets), wide)

    def errors(value):
        return [(g - r).abs().max() for g, r in zip(torch.autograd.grad(value, (x, weight)), right, strict=True)]

    with torch.autocast("cpu", torch.bfloat16, enabled=by_autocast):
        ours = next_token_loss(x, weight, targets, 7)
        theirs = F.cross_entropy(F.linear(x, weight), targets, ignore_index=-1)
    assert ours.dtype is torch.float32
    for mine, other in zip(errors(ours), errors(theirs), strict=True):
        assert mine <= 2 * other + 1e-4


def test_the_gradient_of_a_half_precision_weight_is_summed_in_float32():
    # 4096 gradients of 2⁻¹² each: in bfloat16 the sum would stand still long before the end.
    x = torch.ones(4096, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.float32, requires_grad=True)
    next_token_loss(x, weight, torch.zeros(4096, dtype=torch.int64), 1).backward()
    torch.testing.assert_close(weight.grad, torch.tensor([[-0.5], [0.5]]))


def test_no_targets_at_all_is_no_loss():
    x, weight, targets = random_case(ignored=range(N))
    result = next_token_loss(x, weight, targets, 7)
    grads = torch.autograd.grad(result, (x, weight))
    assert result == 0
    assert all((g == 0).all() for g in grads)


def test_chunks_share_the_rows_out_evenly():
    assert rows_at_a_time(32768, 50257, torch.bfloat16, "cuda") == 8192
    assert rows_at_a_time(5, 50257, torch.float32, "cpu") == 5
    assert rows_at_a_time(0, 50257, torch.float32, "cpu") == 1


def test_the_model_has_the_loss_of_its_logits():
    model = GPT(GPTConfig(vocab_size=37, context_length=13, num_layers=2, d_model=12, num_heads=3)).double()
    ids, targets = torch.randint(37, (2, 13)), torch.randint(37, (2, 13))
    result = model.loss(ids, targets)
    right = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(result, right)
    grads = torch.autograd.grad(result, list(model.parameters()))
    for one, other in zip(grads, torch.autograd.grad(right, list(model.parameters())), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own, on import
@pytest.mark.parametrize("bf16", [False, True])
def test_it_is_one_operation_of_a_compiled_graph(bf16):
    model = GPT(GPTConfig(vocab_size=37, context_length=13, num_layers=1, d_model=12, num_heads=3))
    ids, targets = torch.randint(37, (2, 13)), torch.randint(37, (2, 13))

    def run(function):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            value = function(ids, targets)
        return value, *torch.autograd.grad(value, list(model.parameters()))

    close = {"rtol": 2e-2, "atol": 2e-3} if bf16 else {}
    right = run(model.loss)
    for one, other in zip(run(torch.compile(model.loss, fullgraph=True, dynamic=False)), right, strict=True):
        torch.testing.assert_close(one, other, **close)


@says_it_ourselves
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"x": torch.zeros(N, E + 1)},
            r"x is \(23, 12\) and weight \(37, 11\), but they must be \(N, E\) and \(V, E\)",
        ),
        ({"targets": torch.zeros(5, dtype=torch.int64)}, r"targets has shape \(5,\) but x has 23 rows"),
        ({"targets": torch.full((N,), V)}, r"target 37 is not among the 37 rows of weight"),
        ({"chunk": 0}, r"chunk \(0\) must be at least 1"),
    ],
)
def test_what_does_not_fit_is_said(change, message):
    x, weight, targets = random_case(torch.float32)
    with pytest.raises(ValueError, match=message):
        next_token_loss(**({"x": x, "weight": weight, "targets": targets} | change))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-3), (torch.bfloat16, 2e-2)], ids=str)
def test_on_a_gpu_with_a_vocabulary_that_must_be_padded(dtype, close):
    x, weight = torch.randn(301, 64).to(dtype), (torch.randn(50257, 64) / 8).to(dtype)
    targets = torch.randint(50257, (301,))
    targets[7], targets[8] = -1, 50256
    wide = [t.double().requires_grad_() for t in (x, weight)]
    right = by_torch(*wide, targets)
    here = [t.cuda().requires_grad_() for t in (x, weight)]
    result = next_token_loss(*here, targets.cuda(), 128)
    torch.testing.assert_close(result.cpu().double(), right, rtol=close, atol=close)
    for one, other in zip(torch.autograd.grad(result, here), torch.autograd.grad(right, wide), strict=True):
        assert (one.cpu().double() - other).abs().max() <= close * other.abs().max()


@pytest.mark.parametrize("grads", [False, True])
def test_the_operator_is_as_torch_wants_it(grads):
    x, weight, targets = random_case(torch.float32)
    torch.library.opcheck(loss.in_chunks, (x, weight, targets, 7, grads), test_utils=("test_schema", "test_faketensor"))
    with torch._subclasses.FakeTensorMode() as mode:
        made = loss.in_chunks(*(mode.from_tensor(t) for t in (x, weight, targets)), 7, grads)
    assert made[0]._typed_storage()._cdata != made[3]._typed_storage()._cdata
