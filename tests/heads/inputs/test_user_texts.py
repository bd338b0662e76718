"""Token ids and padding that a user gives: bound to the text that they are of, or by the names of modules."""

import pytest
import torch
from torch import nn

import regard
from heads import models
from heads.made_calls import made_call
from heads.models import ids
from helpers import Textbook
from regard.heads.inputs.user_texts import UserTexts

E = 8


class TwoTowers(nn.Module):
    """A text and an image, each with its own attention; the image has as many patches as `patches`."""

    def __init__(self):
        super().__init__()
        self.embed, self.patches = nn.Embedding(50, E), nn.Conv2d(3, E, 2, 2)
        self.text, self.vision = Tower(), Tower()

    def forward(self, input_ids, pixel_values):
        return self.text(self.embed(input_ids)), self.vision_tower(pixel_values=pixel_values)

    def vision_tower(self, pixel_values):
        return self.vision(pixel_values=pixel_values, embed=self.patches)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(E, 2, batch_first=True)

    def forward(self, x=None, pixel_values=None, embed=None):
        if embed is not None:
            x = embed(pixel_values).flatten(2).mT
        return self.attention(x, x, x, need_weights=False)[0]


@torch.no_grad()
@pytest.mark.parametrize("side", [2, 4, 8], ids=["fewer patches", "as many", "more"])
def test_ids_of_a_text_are_not_those_of_an_image(side):
    model, text = TwoTowers().eval(), torch.tensor([[5, 6, 5, 6]])
    with regard.watch(model, tokens=text, padding=torch.tensor([[True, True, True, False]])) as seen:
        model(text, torch.randn(1, 3, side, side))
    by_name = {layer.name: layer for layer in seen}
    assert not by_name["text.attention"].induction.isnan().all()
    assert by_name["text.attention"].entropy.isnan().tolist() == [[[False, False, False, True]] * 2]
    assert not by_name["vision.attention"].record.has("induction")
    assert not by_name["vision.attention"].entropy.isnan().any()


@torch.no_grad()
@pytest.mark.parametrize("length", [5, 7], ids=["shorter", "as long"])
def test_ids_of_an_encoder_are_not_those_of_its_decoder(length):
    model, text, target = models.t5(), ids(2, 7), ids(2, length) + 1
    with regard.watch(model) as own:
        model(input_ids=text, decoder_input_ids=target)
    for given in (text, target):
        with regard.watch(model, tokens=given) as seen:
            model(input_ids=text, decoder_input_ids=target)
        for one, other in zip(seen, own, strict=True):
            assert one.record.has("induction") == other.record.has("induction")
            if one.record.has("induction"):
                torch.testing.assert_close(one.induction, other.induction, equal_nan=True)


def test_a_dict_says_whose_ids_they_are():
    model = nn.ModuleDict({"one": Textbook(E, E, 16, 0.0, 2), "two": Textbook(E, E, 16, 0.0, 2)})
    model.forward = lambda x: model["two"](model["one"](x))
    text = torch.tensor([[5, 6, 5, 6, 7]])
    with regard.watch(model, tokens={"two": text}, padding={"one": torch.tensor([[True] * 4 + [False]])}) as seen:
        model(torch.randn(1, 5, E))
    assert [layer.record.has("induction") for layer in seen] == [False, True]
    assert [layer.entropy.isnan().any().item() for layer in seen] == [True, False]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"three": torch.ones(1, 5).long()}, "tokens names the module 'three', in which no attention was seen"),
        ({"one": torch.ones(1, 4).long()}, r"tokens\['one'\] has shape \(1, 4\) and is of none of the attentions seen"),
        ({"one": torch.ones(1, 2, 3).long()}, r"tokens\['one'\] has shape \(1, 2, 3\); give \(B, T\)"),
        ({"one": ["The", "cat"]}, r"tokens\['one'\] must be a tensor of token ids"),
    ],
)
def test_a_dict_that_fits_nothing_is_refused(given, message):
    model = nn.ModuleDict({"one": Textbook(E, E, 16, 0.0, 2)})
    model.forward = lambda x: model["one"](x)
    with pytest.raises(ValueError, match=message), regard.watch(model, tokens=given):
        model(torch.randn(1, 5, E))


def test_padding_that_is_shorter_than_a_text_is_not_that_of_the_text():
    call = made_call("", weights=torch.rand(2, 1, 7, 7))
    prompt = made_call("", weights=torch.rand(2, 1, 2, 7))  # with a cache: 5 tokens before
    padding = UserTexts(torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]]), "padding")
    assert padding.real(call, of_image=False) is None
    assert padding.real(prompt, of_image=False).tolist() == [[True, True], [True, True]]
    assert padding.unused == set()
