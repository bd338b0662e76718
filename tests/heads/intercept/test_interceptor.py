"""Which module runs, what counts as a forward, and what else happens while a model is watched."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from heads import models
from heads.models import E, Layers, Sdpa, calls, ids, ladder, random_x, textbook, watched
from regard.attention.masks import Causal
from regard.heads.intercept.intercept import intercept

pytestmark = pytest.mark.usefixtures("unchanged")


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
