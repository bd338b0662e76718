"""Which class a token is of, and the random number that it always has."""

import pytest
import torch
from tokenizers import decoders

import regard
from heads.atlas.corpora import Letters, small_model
from heads.inputs.test_pieces import of_words
from regard.heads.atlas.cells import CLASSES, POSITIONS, TokenClasses, _class_of, mix, position_bin, row_tokens
from regard.heads.inputs.pieces import TokenReader


def tokens_of(ids, padding=None):
    model = small_model()
    with torch.no_grad(), regard.watch(model, tokenizer=Letters(), padding=padding) as seen:
        model(ids)
    return row_tokens(seen[0].record, TokenClasses(TokenReader(Letters())))


def test_every_token_has_one_class_and_one_position():
    text = "§cat 12.\nab"
    found = tokens_of(torch.tensor([Letters().encode(text)]))
    kinds = [CLASSES[i] for i in found.cells[0, :, : len(CLASSES)].argmax(-1).tolist()]
    first, inside = "first of a word", "inside a word"
    expected = ["special", first, inside, inside, "space", "digits", "digits", "punctuation", "space", first, inside]
    assert kinds == expected
    assert found.cells.sum(-1).unique().tolist() == [2.0]
    places = found.cells[0, :, len(CLASSES) :].argmax(-1)
    assert places.tolist() == position_bin(torch.arange(len(text))).tolist()


def test_positions_are_in_the_bins_of_their_names():
    bins = position_bin(torch.tensor([0, 1, 2, 3, 4, 7, 8, 15, 16]))
    assert [POSITIONS[i] for i in bins] == ["0", "1", "2–3", "2–3", "4–7", "4–7", "8–15", "8–15", "16–31"]
    assert POSITIONS[-2:] == ("131072–262143", "262144–")
    assert [POSITIONS[i] for i in position_bin(torch.tensor([262143, 262144]))] == list(POSITIONS[-2:])


def test_a_number_depends_on_the_text_and_the_position_and_on_nothing_else():
    ids = torch.randint(0, 31, (4, 13))
    together = tokens_of(ids).numbers
    alone = torch.cat([tokens_of(row[None]).numbers for row in ids.flip(0)]).flip(0)
    assert torch.equal(together, alone)
    assert len(together.unique()) == together.numel()
    assert int(together.min()) >= 0
    other = ids.clone()
    other[1, 12] = (other[1, 12] + 1) % 31
    assert (tokens_of(other).numbers == together).all(1).tolist() == [True, False, True, True]
    assert not (tokens_of(other).numbers[1] == together[1]).any()


def test_the_same_tokens_in_another_order_are_another_text():
    one, other = (tokens_of(torch.tensor([ids])) for ids in ([3, 5, 7, 7], [5, 3, 7, 7]))
    assert not (one.numbers == other.numbers).any()


def test_padding_changes_no_number_and_is_in_no_cell():
    ids = torch.randint(0, 31, (1, 7))
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], 1)
    real = torch.tensor([[False] * 3 + [True] * 7])
    one, other = tokens_of(padded, padding=real), tokens_of(ids)
    assert torch.equal(one.numbers[:, 3:], other.numbers)
    assert torch.equal(one.at[:, 3:], other.at)
    assert not one.cells[:, :3].any()
    assert torch.equal(one.cells[:, 3:], other.cells)


def test_numbers_are_spread_evenly():
    numbers = mix(torch.arange(100_003)) & ((1 << 63) - 1)
    counts = (numbers >> 60).bincount(minlength=8)
    assert counts.sub(100_003 / 8).abs().max() < 5 * (100_003 / 8) ** 0.5


def test_without_a_reader_no_token_has_a_class():
    model = small_model()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([[1, 2, 3]]))
    found = row_tokens(seen[0].record, None).cells[:, :, : len(CLASSES)]
    assert found.sum().item() == 0


def tokenizers():
    """Tokenizers whose tokens depend in different ways on what is around them, with ids up to which they are tried."""
    transformers = pytest.importorskip("transformers")
    fallback = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    pieces = ["<s>", "▁Al", "ice", "▁1", "▁.", "<0xE7>", "<0x8C>", "<0xAB>", "<0xF0>", "▁", "\u200d"]
    yield regard.GPT.from_pretrained("tiny").tokenizer, 330  # the bytes and some words
    yield of_words(pieces, fallback, ["<s>"]), len(pieces) + 1
    yield of_words(["?", "al", "ice</w>", ".</w>", "12"], decoders.BPEDecoder(suffix="</w>"), ["?"]), 6
    yield of_words(["[CLS]", "al", "##ice", "##.", "猫", "##7"], decoders.WordPiece(), ["[CLS]"]), 6
    yield transformers.ByT5Tokenizer(), 262
    yield AtSigns(), 4


class AtSigns:
    """A slow tokenizer, of which every token may depend on all before."""

    all_special_ids = ()
    words = ("ca@@", "t", "猫")

    def __len__(self):
        return len(self.words)

    def convert_ids_to_tokens(self, i):
        return self.words[i]

    def convert_tokens_to_string(self, tokens):
        return " ".join(tokens).replace("@@ ", "")


def test_classes_are_those_of_the_whole_text():
    generator = torch.Generator().manual_seed(3)
    for tokenizer, most in tokenizers():
        reader, classes, found = TokenReader(tokenizer), TokenClasses(TokenReader(tokenizer)), set()
        for shape in [(1, 0), (1, 1), (3, 2), *[(7, 29)] * 12]:
            ids = torch.randint(0, most, shape, generator=generator)
            real = torch.rand(shape, generator=generator) < 0.9
            texts = [reader.read(*row) for row in zip(ids.tolist(), (~real).tolist(), strict=True)]
            expected = [
                [_class_of(piece, more, one in reader.special) for piece, more, one in zip(*tokens, row, strict=True)]
                for tokens, row in zip([(text.pieces, text.continues) for text in texts], ids.tolist(), strict=True)
            ]
            assert torch.equal(classes.of(ids, real)[real], torch.tensor(expected).reshape(shape)[real])
            found.update(*expected)
        assert len(found) >= 2
