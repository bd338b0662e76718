"""The block: it leaves everything as it was, minds its own thread and model, and says what it cannot do."""

import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import regard
from heads import models
from heads.models import assert_weights, calls, ids, watched, weights_of
from helpers import Textbook
from regard.heads.intercept import intercept
from regard.ladder import multi_head

E = 12


class Layers(nn.Module):
    """Attention, whichever it is, twice."""

    def __init__(self, make, between=None):
        super().__init__()
        self.layers = nn.ModuleList([make(), make()])
        self.between = between

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if self.between is not None:
                self.between(x)
        return x


def textbook():
    return Textbook(E, E, 16, 0.0, 3)


def fused():
    return multi_head.MultiHeadAttention(E, E, 16, 0.0, 3)


def random_x():
    return torch.randn(2, 7, E)


def places():
    """What a watch must not leave changed."""
    stance = torch._dynamo.eval_frame._stance.stance
    names = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
    here = (nn.Module.__call__, F.multi_head_attention_forward, *(getattr(torch, name) for name in names))
    return (
        *here,
        stance,
        _get_current_function_mode_stack(),
        getattr(sys.modules["regard.attention.attend"], "_observer", None),
    )


@pytest.fixture(autouse=True)
def _nothing_stays_changed():
    before = places()
    yield
    assert places() == before


class Broken(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.attention = make()

    def forward(self, x):
        self.attention(x)
        raise ZeroDivisionError("the model broke")


@pytest.mark.parametrize("make", [textbook, fused, lambda: regard.MultiHeadAttention(E, E, 16, 0.0, 3)])
def test_an_exception_in_the_model_leaves_everything_as_it_was(make):
    before, told = places(), []
    with (
        pytest.raises(ZeroDivisionError, match="the model broke"),
        intercept(model := Broken(make), lambda *what: told.append(what)),
    ):
        model(random_x())
    assert places() == before
    assert len(told) == 1


def test_an_exception_deep_in_torchs_own_encoder_leaves_everything_as_it_was():
    layer = nn.TransformerEncoderLayer(E, 3, 41, batch_first=True)
    layer.linear1.register_forward_hook(lambda *_: 1 / 0)
    model, before = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), places()
    with pytest.raises(ZeroDivisionError, match="division by zero"), intercept(model, lambda *_: None):
        model(random_x())
    assert places() == before


def test_an_exception_of_the_one_who_is_told_leaves_everything_as_it_was():
    model, before = Layers(textbook), places()
    with pytest.raises(KeyError, match="no room"), intercept(model, lambda *_: {}["no room"]):
        model(random_x())
    assert places() == before
    assert len(watched(model, random_x())[1]) == 2


def test_an_exception_outside_the_model_is_not_replaced_by_ours():
    with pytest.raises(ZeroDivisionError, match="division by zero"), intercept(Layers(textbook), lambda *_: None):
        1 / 0  # noqa: B018


def test_after_a_failed_forward_the_next_one_counts_on():
    model, told = Layers(textbook), []
    with intercept(model, lambda *what: told.append(what)) as forwards:
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            model(torch.randn(2, 7, 5))
        model(random_x())
    assert [(f, i) for f, i, _ in told] == [(1, 0), (1, 1)]
    assert forwards.count == 2


def test_a_block_without_a_call_says_so():
    with (
        pytest.raises(ValueError, match="the model was not called inside the block"),
        intercept(Layers(textbook), lambda *_: None),
    ):
        pass


def test_a_model_without_attention_says_what_was_looked_for():
    looked_for = "Linear made no attention .* scaled_dot_product_attention, torch.nn.MultiheadAttention, FlexAttention"
    with pytest.raises(ValueError, match=looked_for):
        watched(nn.Linear(E, E), random_x())


def test_other_models_in_the_block_are_not_told_of():
    model, other, told = Layers(textbook), Layers(textbook), []
    with intercept(model, lambda *what: told.append(what)):
        other(random_x())
        F.scaled_dot_product_attention(*[torch.randn(1, 1, 3, 4)] * 3)
        model(random_x())
        other(random_x())
    assert [(f, i, call.module) for f, i, call in told] == [(0, 0, "layers.0"), (0, 1, "layers.1")]


def test_a_part_called_by_itself_is_a_forward_of_its_own():
    model, told = Layers(textbook), []
    with intercept(model, lambda *what: told.append(what)):
        model.layers[1](random_x())
        model(random_x())
    assert [(f, i, call.module) for f, i, call in told] == [(0, 0, "layers.1"), (1, 0, "layers.0"), (1, 1, "layers.1")]


def test_watches_may_be_nested():
    model, x = Layers(textbook), random_x()
    outer, inner, part = [], [], []
    with intercept(model, lambda *what: outer.append(what)):
        model(x)
        with (
            intercept(model, lambda *what: inner.append(what)),
            intercept(model.layers[1], lambda *what: part.append(what)),
        ):
            model(x)
        model(x)
    assert [(f, i) for f, i, _ in outer] == [(f, i) for f in range(3) for i in range(2)]
    assert [(f, i) for f, i, _ in inner] == [(0, 0), (0, 1)]
    assert [(f, i, call.module) for f, i, call in part] == [(0, 0, "")]
    assert torch.equal(weights_of(outer[3][2]), weights_of(part[0][2]))


def test_other_threads_are_neither_seen_nor_disturbed():
    model, x, told, found = Layers(textbook), random_x(), [], []

    def elsewhere():
        found.append((model(x), _get_current_function_mode_stack()))

    other = Layers(textbook, between=lambda _: run())

    def run():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    expected = model(x)
    with intercept(model, lambda *what: told.append(what)), intercept(other, lambda *what: told.append(what)):
        model(x)
        other(x)
    assert len(told) == 4
    assert len(found) == 2
    assert all(torch.equal(out, expected) and stack == [] for out, stack in found)


def test_each_thread_may_watch_for_itself():
    both, results = threading.Barrier(2), {}

    def watch(name):
        model, told = Layers(textbook), []
        with intercept(model, lambda *what: told.append(what)):
            both.wait()
            model(random_x())
            if name == "second":
                ended.wait()
            model(random_x())
        if name == "first":
            ended.set()
        results[name] = [(f, i) for f, i, _ in told]

    ended = threading.Event()
    threads = [threading.Thread(target=watch, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    twice = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert results == {"first": twice, "second": twice}


def test_what_the_one_who_is_told_computes_is_not_told():
    model, told = Layers(fused), []

    def tell(*what):
        told.append(what)
        model(random_x())
        F.scaled_dot_product_attention(*[torch.randn(1, 1, 3, 4)] * 3)

    with intercept(model, tell):
        model(random_x())
    assert len(told) == 2


def test_a_checkpoint_that_runs_again_in_backward_is_told_once():
    for reentrant in (False, True):
        model, told = Layers(textbook), []
        layers = [*model.layers]
        model.forward = lambda x, layers=layers, how=reentrant: checkpoint(
            layers[1], checkpoint(layers[0], x, use_reentrant=how), use_reentrant=how
        )
        with intercept(model, lambda *what, told=told: told.append(what)) as forwards:
            model(random_x().requires_grad_()).sum().backward()
        assert (forwards.count, len(told)) == (1, 2)


def test_others_function_modes_stay_in_their_place():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, 4, 41, batch_first=True), 2).eval()
    x = random_x()
    with torch.no_grad(), torch.device("cpu"):
        unwatched = model(x)
        out, told = watched(model, x)
        assert len(_get_current_function_mode_stack()) == 1
    assert torch.equal(out, unwatched)
    assert len(told) == 2


def test_torchscript_is_refused_by_name():
    model = nn.Sequential(nn.Identity())
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        model[0] = torch.jit.script(nn.Linear(E, E))
    with pytest.raises(ValueError, match="0 is TorchScript, which cannot be looked into; watch the module"):
        watched(model, random_x())


@pytest.mark.parametrize("how", ["whole", "in place", "a part", "its double"])
def test_compiled_models_run_and_are_seen_as_if_they_were_not(how):
    model, x = Layers(textbook), random_x()
    expected, told_before = watched(model, x)
    compiled, called = model, None
    if how == "whole":
        compiled = torch.compile(model, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    elif how == "a part":
        model.layers[1] = torch.compile(model.layers[1], backend="eager")
    else:
        called = torch.compile(model, backend="eager")
    out, told = watched(compiled, x, run=called)
    torch.testing.assert_close(out, expected)
    assert [(f, i, call.module) for f, i, call in told] == [(0, 0, "layers.0"), (0, 1, "layers.1")]
    for ours, theirs in zip(calls(told), calls(told_before), strict=True):
        assert_weights(ours, weights_of(theirs))


class Flex(nn.Module):
    def __init__(self, function, **how):
        super().__init__()
        self.function, self.how = function, how

    def forward(self, q, k):
        return self.function(q, k, k, **self.how)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention_is_seen_by_its_rule(compiled):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    document = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]])

    def rule(b, h, i, j):
        return (document[b, i] == document[b, j]) & (i >= j)

    q, k = torch.randn(2, 6, 7, 16), torch.randn(2, 3, 7, 16)
    block_mask = create_block_mask(rule, 2, None, 7, 7, device="cpu")
    function = torch.compile(flex_attention, backend="eager") if compiled else flex_attention
    model = Flex(function, block_mask=block_mask, enable_gqa=True, scale=0.2)
    unwatched = flex_attention(q, k, k, block_mask=block_mask, enable_gqa=True, scale=0.2)
    out, told = watched(model, q, k)
    torch.testing.assert_close(out, unwatched)
    allowed = (document[:, :, None] == document[:, None]) & torch.ones(7, 7).tril().bool()
    scores = 0.2 * q @ k.repeat_interleave(2, 1).mT
    (call,) = calls(told)
    assert_weights(call, scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1))
    assert call.mask.kind == "rule"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_flex_attention_with_a_changed_score_is_written_out(monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    slopes = torch.tensor([0.5, 0.25, 0.125])
    q = torch.randn(2, 3, 7, 16)
    model = Flex(
        flex_attention, score_mod=lambda score, b, h, i, j: 3 * torch.tanh(score / 3) - slopes[h] * (i - j).abs()
    )
    out, told = watched(model, q, q)
    distance = (torch.arange(7)[:, None] - torch.arange(7)).abs()
    expected = (3 * torch.tanh(q @ q.mT / 4 / 3) - slopes[:, None, None] * distance).softmax(-1)
    assert_weights(told[0][2], expected)
    torch.testing.assert_close(out, expected @ q)
    monkeypatch.setattr(sys.modules["regard.heads.intercept_flex"], "LIMIT", 293)
    with pytest.raises(
        ValueError, match="the model itself: a FlexAttention with a score_mod and 2 × 3 × 7 × 7 weights"
    ):
        watched(model, q, q)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@torch.no_grad()
def test_flex_attention_in_transformers():
    model, x = models.llama(), ids()
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    expected = models.eager(model, input_ids=x, attention_mask=mask).attentions
    model.set_attn_implementation("flex_attention")
    _, told = watched(model, input_ids=x, attention_mask=mask)
    for call, weights in zip(calls(told), expected, strict=True):
        assert_weights(call, weights)


def test_tokens_and_padding_of_the_user_come_first():
    model, x = models.gpt2(), ids()
    embedded = model.transformer.wte(x)
    keep = torch.tensor([[True] * 7, [False] * 2 + [True] * 5])
    _, told = watched(model, inputs_embeds=embedded)
    assert all((call.tokens, call.real) == (None, None) for call in calls(told))
    _, told = watched(model, inputs_embeds=embedded, tokens=x, padding=keep)
    assert all(torch.equal(call.tokens, x) and torch.equal(call.real, keep) for call in calls(told))


def test_tokens_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"tokens has shape \(1, 2, 3\); give \(B, T\)"):
        watched(Layers(textbook), random_x(), tokens=torch.zeros(1, 2, 3))
