"""The block restores everything, is limited to its thread and model, says what it cannot do, and knows what runs."""

import asyncio
import contextvars
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import regard
from heads import models
from heads.models import E, Layers, Sdpa, assert_weights, calls, ids, ladder, random_x, textbook, watched, weights_of
from regard.attention.masks import Causal
from regard.heads.intercept.intercept import intercept

pytestmark = pytest.mark.usefixtures("unchanged")


class Broken(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.attention = make()

    def forward(self, x):
        self.attention(x)
        raise ZeroDivisionError("the model broke")


@pytest.mark.parametrize("make", [textbook, ladder, lambda: regard.MultiHeadAttention(E, E, 16, 0.0, 3)])
def test_an_exception_in_the_model_leaves_everything_as_it_was(make, unchanged):
    reports = []
    with (
        pytest.raises(ZeroDivisionError, match="the model broke"),
        intercept(model := Broken(make), lambda *report: reports.append(report)),
    ):
        model(random_x())
    unchanged()
    assert len(reports) == 1


def test_an_exception_deep_in_torchs_own_encoder_leaves_everything_as_it_was(unchanged):
    layer = nn.TransformerEncoderLayer(E, 3, 41, batch_first=True)
    layer.linear1.register_forward_hook(lambda *_: 1 / 0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with pytest.raises(ZeroDivisionError, match="division by zero"), intercept(model, lambda *_: None):
        model(random_x())
    unchanged()


def test_an_exception_in_the_callback_leaves_everything_as_it_was(unchanged):
    model = Layers(textbook)
    with pytest.raises(KeyError, match="no such key"), intercept(model, lambda *_: {}["no such key"]):
        model(random_x())
    unchanged()
    assert len(watched(model, random_x())[1]) == 2


def test_an_exception_outside_the_model_is_not_replaced_by_ours():
    with pytest.raises(ZeroDivisionError, match="division by zero"), intercept(Layers(textbook), lambda *_: None):
        1 / 0  # noqa: B018


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


def test_other_models_in_the_block_are_not_reported():
    model, other, reports = Layers(textbook), Layers(textbook), []
    with intercept(model, lambda *report: reports.append(report)):
        other(random_x())
        F.scaled_dot_product_attention(*[torch.randn(1, 1, 3, 4)] * 3)
        model(random_x())
        other(random_x())
    assert [(f, i, call.origin.module) for f, i, call in reports] == [(0, 0, "layers.0"), (0, 1, "layers.1")]


def test_watches_may_be_nested():
    model, x = Layers(textbook), random_x()
    outer, inner, part = [], [], []
    with intercept(model, lambda *report: outer.append(report)):
        model(x)
        with (
            intercept(model, lambda *report: inner.append(report)),
            intercept(model.layers[1], lambda *report: part.append(report)),
        ):
            model(x)
        model(x)
    assert [(f, i) for f, i, _ in outer] == [(f, i) for f in range(3) for i in range(2)]
    assert [(f, i) for f, i, _ in inner] == [(0, 0), (0, 1)]
    assert [(f, i, call.origin.module) for f, i, call in part] == [(0, 0, "")]
    assert torch.equal(weights_of(outer[3][2]), weights_of(part[0][2]))


def test_other_threads_are_neither_seen_nor_disturbed():
    model, x, reports, found = Layers(textbook), random_x(), [], []

    def elsewhere():
        found.append((model(x), _get_current_function_mode_stack()))

    other = Layers(textbook, between=lambda _: run())

    def run():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    expected = model(x)
    with (
        intercept(model, lambda *report: reports.append(report)),
        intercept(other, lambda *report: reports.append(report)),
    ):
        model(x)
        other(x)
    assert len(reports) == 4
    assert len(found) == 2
    assert all(torch.equal(out, expected) and stack == [] for out, stack in found)


def test_a_thread_that_runs_in_a_copy_of_the_context_is_not_watched():
    model, reports, stacks = Layers(textbook), [], []
    with intercept(model, lambda *report: reports.append(report)):
        model(random_x())
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(lambda: stacks.append((model(random_x()), _get_current_function_mode_stack())),)
        )
        thread.start()
        thread.join()
    assert [stack for _, stack in stacks] == [[]]
    assert len(reports) == 2


def test_watches_may_end_in_any_order():
    model, first, second = Layers(textbook), [], []
    one = intercept(model, lambda *report: first.append(report))
    two = intercept(model, lambda *report: second.append(report))
    one.__enter__()
    two.__enter__()
    model(random_x())
    one.__exit__(None, None, None)
    model(random_x())
    two.__exit__(None, None, None)
    assert (len(first), len(second)) == (2, 4)


def test_tasks_that_start_inside_the_block_are_watched():
    model, reports = Layers(textbook), []

    async def call():
        await asyncio.sleep(0)
        model(random_x())

    async def watch():
        with intercept(model, lambda *report: reports.append(report)):
            await asyncio.gather(call(), call())

    asyncio.run(watch())
    assert [(f, i) for f, i, _ in reports] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_each_thread_may_watch_for_itself():
    both, results = threading.Barrier(2), {}

    def watch(name):
        model, reports = Layers(textbook), []
        with intercept(model, lambda *report: reports.append(report)):
            both.wait()
            model(random_x())
            if name == "second":
                ended.wait()
            model(random_x())
        if name == "first":
            ended.set()
        results[name] = [(f, i) for f, i, _ in reports]

    ended = threading.Event()
    threads = [threading.Thread(target=watch, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    twice = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert results == {"first": twice, "second": twice}


def test_torchscript_is_refused_by_name():
    model = nn.Sequential(nn.Identity())
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        model[0] = torch.jit.script(nn.Linear(E, E))
    with pytest.raises(ValueError, match="0 is TorchScript, which cannot be intercepted; watch the module"):
        watched(model, random_x())


@pytest.mark.parametrize("how", ["whole", "in place", "a part", "its double"])
def test_compiled_models_run_and_are_seen_as_if_they_were_not(how):
    model, x = Layers(textbook), random_x()
    expected, reports_before = watched(model, x)
    compiled, called = model, None
    if how == "whole":
        compiled = torch.compile(model, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    elif how == "a part":
        model.layers[1] = torch.compile(model.layers[1], backend="eager")
    else:
        called = torch.compile(model, backend="eager")
    out, reports = watched(compiled, x, run=called)
    torch.testing.assert_close(out, expected)
    assert [(f, i, call.origin.module) for f, i, call in reports] == [(0, 0, "layers.0"), (0, 1, "layers.1")]
    for ours, theirs in zip(calls(reports), calls(reports_before), strict=True):
        assert_weights(ours, weights_of(theirs))


def test_modules_are_named_and_counted():
    model, reports = models.gpt2(), []
    with models.intercept(model, lambda *report: reports.append(report)) as forwards:
        model(ids())
        assert (forwards.count, forwards.calls) == (1, 2)
        model(ids())
    assert (forwards.count, forwards.calls) == (2, 4)
    names = [(forward, layer, call.origin.module) for forward, layer, call in reports]
    assert names == [(f, i, f"transformer.h.{i}.attn") for f in (0, 1) for i in (0, 1)]
    assert all(isinstance(call.attention.mask, Causal) for call in calls(reports))


def test_a_failed_forward_is_counted():
    model, reports = Layers(textbook), []
    with intercept(model, lambda *report: reports.append(report)) as forwards:
        with pytest.raises(RuntimeError, match="x has width 5 but this linear layer takes"):
            model(torch.randn(2, 7, 5))
        model(random_x())
    assert [(f, i) for f, i, _ in reports] == [(1, 0), (1, 1)]
    assert forwards.count == 2


def test_a_part_called_by_itself_is_a_forward_of_its_own():
    model, reports = Layers(textbook), []
    with intercept(model, lambda *report: reports.append(report)):
        model.layers[1](random_x())
        model(random_x())
    assert [(f, i, call.origin.module) for f, i, call in reports] == [
        (0, 0, "layers.1"),
        (1, 0, "layers.0"),
        (1, 1, "layers.1"),
    ]


def test_attention_in_the_callback_is_not_reported():
    model, reports = Layers(ladder), []

    def callback(*report):
        reports.append(report)
        model(random_x())
        F.scaled_dot_product_attention(*[torch.randn(1, 1, 3, 4)] * 3)

    with intercept(model, callback):
        model(random_x())
    assert len(reports) == 2


def test_a_checkpoint_that_runs_again_in_backward_is_reported_once():
    for reentrant in (False, True):
        model, reports = Layers(textbook), []
        layers = [*model.layers]
        model.forward = lambda x, layers=layers, how=reentrant: checkpoint(
            layers[1], checkpoint(layers[0], x, use_reentrant=how), use_reentrant=how
        )
        with intercept(model, lambda *report, reports=reports: reports.append(report)) as forwards:
            model(random_x().requires_grad_()).sum().backward()
        assert (forwards.count, len(reports)) == (1, 2)


def test_others_function_modes_stay_in_their_place():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, 4, 41, batch_first=True), 2).eval()
    x = random_x()
    with torch.no_grad(), torch.device("cpu"):
        unwatched = model(x)
        out, reports = watched(model, x)
        assert len(_get_current_function_mode_stack()) == 1
    assert torch.equal(out, unwatched)
    assert len(reports) == 2


def test_what_cannot_be_followed_is_named_with_its_module():
    class Strange(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is F.scaled_dot_product_attention:
                return args[0]
            raise TypeError("a mask like no other")

    model, q = nn.ModuleDict({"odd": Sdpa()}), torch.randn(2, 3, 7, 16)
    model.forward = lambda q: model["odd"](q, q, attn_mask=torch.ones(7, 7).as_subclass(Strange))
    with pytest.raises(ValueError, match="cannot follow the attention in odd: a mask like no other"):
        watched(model, q)


def test_an_error_of_torch_is_explained_and_can_still_be_caught_as_torchs_own():
    class Joined(nn.Module):
        def __init__(self, catches):
            super().__init__()
            self.catches = catches

        def forward(self, x):
            try:
                return F.scaled_dot_product_attention(x, x, x).transpose(1, 2).view(2, 7, 15)
            except RuntimeError:
                if self.catches:
                    return x
                raise

    x = torch.randn(2, 3, 7, 5)
    with pytest.raises(
        ValueError, match=r"view\(2, 7, 15\) needs memory in order, .*call .contiguous\(\) before .view"
    ):
        watched(Joined(catches=False), x)
    torch.testing.assert_close(watched(Joined(catches=True), x)[0], x, rtol=0, atol=0)
