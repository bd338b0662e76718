"""What the arguments of a module say is read when an attention call asks."""

import torch
from torch import nn

from regard.heads.inputs.module_call import CallInputs, ModuleCall


def test_arguments_are_read_when_they_are_asked_for():
    x, other = torch.randn(2, 5, 7), torch.randn(2, 3, 7)
    call = ModuleCall(nn.Identity(), (x,), {"context": other, "use_cache": False}, None)
    assert (call.given.shape, call.given.cached) == ((2, 5, 7), False)
    assert (call.source.name, call.source.length) == ("context", 3)
    assert not call.of_image
    assert call.arguments == (x, other, False)


def test_an_image_is_recognised():
    assert ModuleCall(nn.Identity(), (), {"pixel_values": torch.randn(2, 3, 11, 11)}, None).of_image


def test_what_a_module_was_not_given_is_that_of_the_modules_around_it():
    ids, others = CallInputs(length=5), CallInputs(length=3)
    outer = ModuleCall(nn.Identity(), (torch.randn(2, 5, 7),), {"past_key_values": object()}, ids)
    middle = ModuleCall(nn.Identity(), (), {"flag": True}, None, outer)
    inner = ModuleCall(nn.Identity(), (torch.randn(3, 11),), {}, None, middle)
    assert (middle.given.shape, middle.given.cached, middle.known) == ((2, 5, 7), True, ids)
    assert (inner.given.shape, inner.given.cached, inner.known) == ((3, 11), True, ids)
    assert ModuleCall(nn.Identity(), (), {}, others, outer).known is others
