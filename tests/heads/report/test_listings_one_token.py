"""One token in every head."""

import pytest
import torch

import regard
from heads import dense, models
from heads.models import ids
from heads.reports import two_layers


def alice():
    model = regard.GPT.from_pretrained("tiny")
    text = "Alice was beginning to get very tired, and Alice was beginning"
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode(text)]))
    return seen


def test_the_weights_of_a_token_are_its_row_and_its_column_in_every_head():
    seen = alice()
    token, position = seen.at("was@12"), 12
    everything = torch.stack([layer.weights()[0] for layer in seen])  # (L, H, T, S)
    assert (token.name, token.position, len(token)) == ("was@12", position, 48)
    torch.testing.assert_close(token.weights, everything[:, :, position])
    torch.testing.assert_close(token.received, everything[:, :, :, position])
    torch.testing.assert_close(seen.at(12).weights, token.weights)
    assert torch.equal(seen.at(12, layers=[4]).weights, token.weights[4:5])


def test_the_most_telling_head_is_the_one_that_looks_most_at_something_but_the_first_token():
    token = alice().at("was@12")
    expected = token.weights[:, :, 1:].amax(-1).flatten().sort(descending=True).values
    torch.testing.assert_close(torch.tensor([one.telling for one in token]), expected)
    assert [one.weights[1:].max().item() for one in token] == [one.telling for one in token]


def test_a_word_of_several_tokens_is_not_one_token():
    with pytest.raises(ValueError, match=r"'Alice@0' is 2 tokens; choose one: Al@0 or ##ice@1"):
        alice().at("Alice@0")


def test_without_names_a_token_has_a_position(monkeypatch):
    dense.stand_in(monkeypatch)
    seen = two_layers()
    assert seen.at(3, text=1).name == "token 3"
    torch.testing.assert_close(
        seen.at(3, text=1).weights, torch.stack([layer.weights()[1, :, 3] for layer in seen]), check_dtype=False
    )
    with pytest.raises(ValueError, match=r"2 texts were seen; choose one: seen\.at\(3, text=0\)"):
        seen.at(3)
    with pytest.raises(ValueError, match=r"token 5 does not exist: there are 5, 0 to 4"):
        seen.at(5, text=0)


def test_layers_of_other_texts_are_chosen_apart():
    model = models.t5()
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=ids(1, 7), decoder_input_ids=ids(1, 5))
    with pytest.raises(ValueError, match=r"layers 0 \(.*\) and 2 \(.*\) have other queries, so 3 is not one token"):
        seen.at(3)
    assert seen.at(3, layers=[0, 1]).weights.shape == (2, 4, 7)
    decoder = seen.at(3, layers=[2, 3])
    with pytest.raises(
        ValueError, match=r"weights of layers with different sizes \(2: 4 × 5, 3: 4 × 7: heads × keys\)"
    ):
        _ = decoder.weights
    assert decoder.received[1].isnan().all()  # in cross-attention no query looks at it
