"""The texts of an effect: their forms, targets and chosen tokens."""

import pytest
import torch

from regard.heads.change.samples import choose_tokens, encoder_of, read_samples, read_tokens
from regard.heads.inputs.pieces import WordReader

CPU = torch.device("cpu")


def encode(text):
    return [len(word) for word in text.split()]


def ids_of(text, targets=None):
    return [one.ids.tolist() for one in read_samples(text, encode, targets, CPU)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a bc def", [[1, 2, 3]]),
        ([5, 7], [[5, 7]]),
        (torch.tensor([5, 7]), [[5, 7]]),
        (torch.tensor([[5, 7], [3, 2]]), [[5, 7], [3, 2]]),
        (["a bc", [5, 7, 3], torch.tensor([2, 3])], [[1, 2], [5, 7, 3], [2, 3]]),
        ([torch.tensor([5, 7]), torch.tensor([2, 3])], [[5, 7], [2, 3]]),
        ({"input_ids": torch.tensor([[5, 7], [3, 2]])}, [[5, 7], [3, 2]]),
    ],
)
def test_a_text_is_a_string_or_ids_or_what_the_model_is_called_with(text, expected):
    assert ids_of(text) == expected


@pytest.mark.parametrize(
    ("ids", "real", "targets"),
    [([9, 9, 5, 7, 3], [0, 0, 1, 1, 1], [-1, -1, -1, 7, 3]), ([5, 7, 3, 9, 9], [1, 1, 1, 0, 0], [-1, 7, 3, -1, -1])],
    ids=["left", "right"],
)
def test_the_next_token_is_the_target_and_padding_is_none(ids, real, targets):
    inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.tensor([real])}
    (sample,) = read_samples(inputs, encode, None, CPU)
    assert (sample.targets.tolist(), sample.ahead) == (targets, 1)


@pytest.mark.parametrize(
    ("text", "targets", "message"),
    [
        ([], None, "there is no text to measure an effect on"),
        ([[5]], None, "text 0 has 1 token; a prediction needs 2 or more"),
        (torch.zeros(3), None, r"a text is a string, token ids .* this is torch.float32 \(3,\)"),
        ({"pixel_values": torch.zeros(1, 3)}, None, "is called with pixel_values and no input_ids; give targets"),
        ([[5, 7], [2, 3]], torch.tensor([1]), "there are 2 texts and targets for 1; give one for each text"),
        ([5, 7], torch.tensor([-1, -1]), "the targets of text 0 are all negative, so nothing counts"),
    ],
)
def test_texts_that_cannot_be_read_say_why(text, targets, message):
    with pytest.raises(ValueError, match=message):
        read_samples(text, encode, targets, CPU)


def test_a_string_needs_a_tokenizer():
    with pytest.raises(
        ValueError, match="the text is a string and no tokenizer is known; give tokenizer=…, or token ids"
    ):
        encoder_of(torch.nn.Linear(2, 3), None)("the cat")


def test_chosen_tokens_are_positions_in_each_text():
    reader = WordReader([["the", "cat", "sat"], ["a", "dog", "and", "cat"]])
    samples = read_samples([torch.tensor(ids) for ids in reader.ids], encode, None, CPU)
    texts = read_tokens(samples, reader)
    assert choose_tokens(["cat", -1], samples, texts) == [[1, 2], [3]]
    assert choose_tokens(1, samples, None) == [[1], [1]]
    with pytest.raises(ValueError, match="text 0: no token is called 'dog'"):
        choose_tokens("dog", samples, texts)
    with pytest.raises(ValueError, match="text 0: 'the' is not predicted, nothing stands before it; choose others"):
        choose_tokens(0, samples, texts)
    with pytest.raises(ValueError, match="text 0: there is no token 3; the text has tokens 0 to 2"):
        choose_tokens(3, samples, texts)
    with pytest.raises(ValueError, match="'cat' cannot be looked up: no tokenizer is known"):
        choose_tokens("cat", samples, None)
