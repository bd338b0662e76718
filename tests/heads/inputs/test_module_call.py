"""What the arguments of a module say is read when an attention call asks: its inputs, and where its keys come from."""

import torch
from torch import nn

from heads import models
from heads.models import calls, ids, watched
from regard.heads.calls.call import TextIds
from regard.heads.inputs.module_call import CallInputs, ModuleCall
from regard.heads.inputs.text_arguments import EncoderTexts


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


def test_only_the_very_same_tensor_is_known_to_be_of_a_text():
    texts, states, text = EncoderTexts(), torch.randn(2, 5, 3), TextIds(ids(2, 5))
    texts.remember((states, "cache"), text)
    assert texts.of(states) is text
    assert texts.of(states.clone()) is None
    assert texts.of(None) is None


def test_the_innermost_module_knows_best_and_sizes_must_agree():
    texts, states, inner = EncoderTexts(), torch.randn(2, 5, 3), TextIds(ids(2, 5))
    texts.remember(states, TextIds(ids(2, 7)))
    assert texts.of(states) is None
    texts.remember({"last_hidden_state": states}, inner)
    texts.remember(states, TextIds(ids(2, 5)))
    assert texts.of(states) is inner


@torch.no_grad()
def test_cross_attention_has_the_decoders_ids_as_queries_and_the_encoders_as_keys():
    for model, T in ((models.t5(), 5), (models.bart(), 7)):  # also where both texts are equally long
        x, y = ids(2, 7), ids(2, T)
        mask = torch.ones_like(x).index_fill(1, torch.tensor([6]), 0)
        _, reports = watched(model, input_ids=x, attention_mask=mask, decoder_input_ids=y)
        across = [call for call in calls(reports) if call.origin.across]
        assert len(across) == 2
        for call in across:
            assert torch.equal(call.origin.query_text.ids, y)
            assert torch.equal(call.origin.key_text.ids, x)
            assert torch.equal(call.origin.key_text.real, mask.bool())


@torch.no_grad()
def test_keys_that_are_a_copy_of_the_encoders_output_are_of_no_known_text():
    model, x, y = models.t5(), ids(2, 7), ids(2, 5)
    states = model.encoder(input_ids=x).last_hidden_state
    _, reports = watched(model, encoder_outputs=(states.clone(),), decoder_input_ids=y)
    across = [call for call in calls(reports) if call.origin.across]
    assert [call.origin.key_text for call in across] == [None, None]
    assert all(torch.equal(call.origin.query_text.ids, y) for call in across)
