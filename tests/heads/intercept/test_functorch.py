"""Models that run inside torch.func."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jvp, vmap

import regard
from heads import models
from regard.heads.intercept import functorch


class Eager(nn.Module):
    def forward(self, x):
        return (x @ x.mT).softmax(-1) @ x


class Sdpa(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


MODELS = {"sdpa": Sdpa, "eager": Eager, "ours": lambda: regard.MultiHeadAttention(12, 12, 16, 0.0, 3).eval()}
x = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_inside_a_watch_is_the_same_and_the_report_holds_plain_tensors(name):
    model = MODELS[name]()
    expected = grad(lambda x: model(x).square().sum())(x)
    with regard.watch(model) as plain:
        model(x)
    with regard.watch(model) as seen:
        found = grad(lambda x: model(x).square().sum())(x)
    torch.testing.assert_close(found, expected)
    for name in ("entropy", "received", "largest_key"):
        value = getattr(seen[0], name)
        assert not torch._C._functorch.is_functorch_wrapped_tensor(value)
        torch.testing.assert_close(value, getattr(plain[0], name), equal_nan=True)
    torch.testing.assert_close(seen[0].weights(), plain[0].weights())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # of torch's own forward mode
def test_gradients_of_gradients_and_forward_mode_are_seen():
    model = Eager()
    with regard.watch(model) as seen:
        grad(lambda x: grad(lambda x: model(x).sum())(x).square().sum())(x)
        jvp(model, (x,), (x,))
    assert len(seen.forwards) == 2
    assert torch.equal(seen.forwards[0][0].entropy, seen.forwards[1][0].entropy)


def test_the_tokens_of_a_language_model_are_known_inside_a_gradient():
    model, ids = models.gpt2(), models.ids()
    weights = dict(model.named_parameters())

    def loss(weights, ids):
        return functional_call(model, weights, (ids,)).logits.square().mean()

    with regard.watch(model) as seen:
        grad(loss)(weights, ids)
    with regard.watch(model) as plain:
        model(ids)
    torch.testing.assert_close(seen[1].induction, plain[1].induction, equal_nan=True)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_attention_in_vmap_is_not_reported_and_this_is_said(name):
    model = MODELS[name]()
    expected = vmap(lambda x: model(x[None]))(x)
    message = r"the attention in the model itself is not reported: it runs in torch\.vmap.*with a batch instead"
    with regard.watch(model) as seen:
        with pytest.warns(UserWarning, match=message):
            out = vmap(lambda x: model(x[None]))(x)
        vmap(grad(lambda x: model(x[None]).sum()))(x)
        model(x)
    torch.testing.assert_close(out, expected)
    assert len(seen.forwards) == 1
    assert seen[0].entropy.shape[0] == 2


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_attention_in_vmap_cannot_be_cut():
    model = MODELS["ours"]()
    message = r"cannot cut the attention in the model itself: it runs in torch\.vmap"
    with pytest.raises(ValueError, match=message), regard.cut(model, heads=[(0, 1)]):
        vmap(lambda x: model(x[None]))(x)


def test_arguments_that_are_the_same_stay_the_same():
    def look(x):
        (a, b), named = functorch.plain_arguments((x, x), {"key": x, "n": 3})
        assert a is b is named["key"]
        assert named["n"] == 3
        assert not torch._C._functorch.is_functorch_wrapped_tensor(a)
        return x.sum()

    grad(look)(x)
    assert functorch.plain_arguments((x,), {}) == ((x,), {})
