"""Prompts in every form become the same rows; what is no prompt is options why."""

import pytest
import torch

from regard.gpt import GPTConfig
from regard.gpt.generate.text import Prompts, pad_left, read_prompts
from regard.gpt.tokenizer.tokenizer import Tokenizer

CONFIG = GPTConfig(vocab_size=257, context_length=7, num_layers=1, d_model=4, num_heads=1, end=0)
BYTES = Tokenizer.train([], vocab_size=257)  # every byte a token, and the end


def rows(prompt, mask=None, config=CONFIG, tokenizer=BYTES):
    return read_prompts(prompt, mask, config, tokenizer).rows


@pytest.mark.parametrize(
    "prompt, expected",
    [
        ("ab", Prompts([BYTES.encode("ab")], is_text=True, is_batch=False)),
        (["ab", "c"], Prompts([BYTES.encode("ab"), BYTES.encode("c")], is_text=True, is_batch=True)),
        ([5, 6], Prompts([[5, 6]], is_text=False, is_batch=False)),
        ([[5, 6], [7]], Prompts([[5, 6], [7]], is_text=False, is_batch=True)),
        (torch.tensor([5, 6]), Prompts([[5, 6]], is_text=False, is_batch=False)),
        (torch.tensor([[5, 6]]), Prompts([[5, 6]], is_text=False, is_batch=True)),
    ],
    ids=str,
)
def test_every_form_is_read(prompt, expected):
    assert read_prompts(prompt, None, CONFIG, BYTES) == expected


def test_padding_on_the_left_and_on_the_right_is_taken_off():
    ids = torch.tensor([[9, 9, 5], [6, 7, 9]])
    mask = [[0, 0, 1], [1, 1, 0]]
    assert rows(ids, torch.tensor(mask)) == [[5], [6, 7]]
    assert rows(ids, torch.tensor(mask, dtype=torch.bool)) == [[5], [6, 7]]
    assert rows(ids[0], torch.tensor([False, False, True])) == [[5]]


def test_an_empty_prompt_starts_from_the_end_token():
    assert rows("") == rows([]) == rows(torch.zeros(0, dtype=torch.long)) == [[0]]
    assert rows(torch.tensor([[5, 6], [5, 6]]), torch.tensor([[1, 1], [0, 0]])) == [[5, 6], [0]]


def test_what_a_tokenizer_puts_before_every_text_is_there_and_names_in_the_text_are_text():
    class Llamas:
        def encode(self, text, special=False):
            return [1, *map(ord, text), 0] if special else [*map(ord, text)]

    assert rows("ab", tokenizer=Llamas()) == [[1, 97, 98]]
    assert rows("", tokenizer=Llamas()) == [[1]]
    assert 0 not in rows("<|endoftext|>", config=CONFIG.with_(context_length=99))[0]


def test_rows_are_padded_on_the_left():
    ids, starts = pad_left([[5], [6, 7, 8], [9, 10]])
    assert ids.tolist() == [[0, 0, 5], [6, 7, 8], [0, 9, 10]]
    assert starts.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "prompt, mask, message",
    [
        (7, None, "a prompt must be a text, token ids, or a list of either, not int"),
        ([5, "a"], None, "must be all texts, all ids or all lists of ids, but holds int, str"),
        ([[5, 2.5]], None, "must be all texts, all ids or all lists of ids, but holds list"),
        (
            torch.ones(3),
            None,
            r"ids must be whole numbers of shape \(T,\) or \(B, T\), but are float32 of shape \(3,\)",
        ),
        (torch.ones(2, 3, 5, dtype=torch.long), None, r"but are int64 of shape \(2, 3, 5\)"),
        ([5], torch.ones(1), "mask says which tokens of a tensor are real; lists and texts need none"),
        (torch.ones(2, 3).long(), torch.ones(3), r"mask has shape \(3,\) but ids have \(2, 3\)"),
        (torch.ones(1, 2).long(), torch.tensor([[1, 2]]), "mask must be True or 1 for a real token"),
        (torch.ones(1, 4).long(), torch.tensor([[1, 1, 0, 1]]), "row 0 of mask has a hole at token 2; padding stands"),
        ([5, 257], None, r"token id 257 is not among this model's 257 \(0 to 256\)"),
        ([[5], [-1]], None, "token id -1 is not among this model's 257"),
        ([5] * 8, None, "8 tokens do not fit context_length=7; give a prompt of at most 7"),
    ],
)
def test_what_is_no_prompt_is_told(prompt, mask, message):
    with pytest.raises(ValueError, match=message):
        rows(prompt, mask)


def test_text_without_a_tokenizer_and_nothing_without_an_end_are_told():
    with pytest.raises(ValueError, match="this model has no tokenizer to read a text with; give token ids"):
        rows("ab", tokenizer=None)
    with pytest.raises(ValueError, match="the prompt is empty, and this model has no end token to start from"):
        rows([], config=CONFIG.with_(end=None))
