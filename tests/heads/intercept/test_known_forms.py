"""What was not needed in one form of a model is not followed again in this form, and in no other."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.heads.intercept.intercept import intercept
from regard.heads.intercept.known_forms import What, call_form, moves_without_need


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(12, 36)
        self.moved = ""

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 3, 4).permute(2, 0, 3, 1, 4)
        match self.moved:
            case "flip":
                k = k.flip(2)
            case "roll":
                k = k.roll(1, 0)
            case "index":
                k = k[:, :, torch.arange(x.shape[1]).flip(0)]
        return F.scaled_dot_product_attention(q, k, v)


def watched(model, x):
    with intercept(model, lambda *_: None):
        model(x)


@pytest.mark.parametrize("what", What)
def test_a_model_that_ran_without_a_doubt_is_not_followed_again_in_this_form(what):
    model, x = Layer(), torch.randn(2, 5, 12)

    def is_known(x):
        return moves_without_need(call_form(model, ("x",), (x,), {}), what) is not None

    assert not is_known(x)
    for _ in range(2):
        watched(model, x)
        assert is_known(x)
    assert not is_known(x[:, :4])
    assert not is_known(x.expand(3, 2, 5, 12).flatten(0, 1))
    model.eval()
    assert not is_known(x)


def test_another_model_at_the_same_address_is_not_known():
    watched(model := Layer(), torch.randn(2, 5, 12))
    form = call_form(model, ("x",), (torch.randn(2, 5, 12),), {})
    assert moves_without_need(form, What.ROWS) is not None
    assert moves_without_need(form._replace(module=Layer()), What.ROWS) is None


@pytest.mark.parametrize("moved", ["flip", "roll", "index"])
def test_a_model_that_starts_to_move_its_keys_is_marked_at_once_and_followed_again(moved):
    model, x = Layer(), torch.randn(2, 5, 12)
    marks = []
    for how in ("", moved, moved, "", ""):
        model.moved = how
        with regard.watch(model) as seen:
            model(x)
        marks.append(bool(seen[0].marks))
    assert marks == [False, True, True, False, False]
