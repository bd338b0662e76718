"""Token ids as texts, by every kind of tokenizer."""

import pickle

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from regard.gpt.tokenizer.tokenizer import Tokenizer as OurTokenizer
from regard.heads.inputs.pieces import TokenReader, WordReader
from regard.support.tokens import TextTokens


def read(tokenizer, ids, padding=None):
    return TokenReader(tokenizer).read(ids, [False] * len(ids) if padding is None else padding)


def of_words(words, decoder, special=()):
    """A tokenizer with these tokens, in their order."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in special])
    return tokenizer


OURS = OurTokenizer.train(["Alice saw the cat, the catnip"] * 3, vocab_size=262)
TEXTS = ["Alice, naïve 猫 saw\n\nthe  catnip", "👩‍💻 don't 2024 हिन्दी", "黑猫 é e\u0301"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_of_bytes_are_the_text_and_no_label_has_a_replacement_character(text):
    tokens = read(OURS, OURS.encode(text))
    assert "".join(tokens) == text
    assert len(set(tokens.labels)) == len(tokens)
    assert not any("\ufffd" in label for label in tokens.labels)


def test_bytes_of_a_character_are_named_and_belong_to_one_word():
    tokens = read(OURS, OURS.encode("猫 naï"))
    assert tokens.labels[:3] == ["猫:1", "猫:2", "猫:3"]
    assert tokens.labels[-2:] == ["ï:1", "ï:2"]
    assert tokens.span("猫") == range(3)
    assert [tokens.labels[i] for i in tokens.span("naï")][-2:] == ["ï:1", "ï:2"]
    assert tokens.marks()[0] == "猫:1 is byte 1 of 3 of 猫"


def test_bytes_that_are_no_text_are_escaped():
    ids = OURS.encode("猫")
    assert read(OURS, [*ids[:2], *OURS.encode("a")]).names == [r"\xe7", r"\x8c", "a"]
    assert read(OURS, [OURS.end, *ids[1:2], 10**6]).labels == ["<|endoftext|>", r"\x8c", "<id 1000000>"]


def test_ours_and_the_tokenizer_inside_it_read_alike():
    ids = OURS.encode("the cat saw")
    assert read(OURS, ids) == read(OURS.backend_tokenizer, ids)
    assert (TokenReader(OURS).special, TokenReader(OURS).beginning) == ({0}, 0)


def test_sentencepiece_marks_where_a_word_begins_and_writes_bytes():
    words = ["<unk>", "<s>", "▁Al", "ice", "▁saw", "<0xE7>", "<0x8C>", "<0xAB>"]
    for decoder in (
        decoders.Metaspace(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    ):
        tokens = read(of_words(words, decoder, ["<s>"]), [1, 2, 3, 4, 5, 6, 7, 3])
        assert tokens.labels == ["<s>", "Al", "##ice", "saw", "猫:1", "猫:2", "猫:3", "ice"]
        assert list(tokens)[1:4] == [" Al", "ice", " saw"]


def test_word_pieces_continue_a_word():
    words = ["[UNK]", "[CLS]", "al", "##ice", "'", "s", "[SEP]", "##"]
    tokens = read(of_words(words, decoders.WordPiece(), ["[CLS]", "[SEP]"]), [1, 2, 3, 4, 5, 6, 7])
    assert tokens.labels == ["[CLS]", "al", "##ice", "'", "s", "[SEP]", "##"]
    assert tokens.span("alice") == range(1, 3)


def test_a_mark_at_the_end_of_a_word_says_that_the_next_token_begins_one():
    tokens = read(of_words(["?", "al", "ice</w>", "saw</w>"], decoders.BPEDecoder(suffix="</w>")), [1, 2, 3, 1, 2])
    assert tokens.names == ["al", "##ice", "saw", "al", "##ice"]
    assert "".join(tokens) == " alice saw alice"


def test_without_a_decoder_every_token_is_a_word():
    assert read(of_words(["?", "the", "cat"], None), [1, 2, 1]).labels == ["the@0", "cat", "the@2"]


def test_a_special_token_continues_nothing_and_nothing_continues_it():
    tokenizer = of_words(["?", "END", "cat"], decoders.Fuse(), ["END"])
    assert read(tokenizer, [2, 1, 2, 2]).names == ["cat", "END", "cat", "##cat"]


def test_tokens_that_were_added_are_spelled_as_they_are():
    tokenizer = OurTokenizer.train(["a b"], vocab_size=257).backend_tokenizer
    tokenizer.add_tokens(["é  "])
    assert list(read(tokenizer, [tokenizer.token_to_id("é  ")])) == ["é  "]


def test_padding_stands_alone_whatever_its_id():
    ids = [OURS.end, OURS.end, *OURS.encode("the")]
    tokens = read(OURS, ids, [True, False, *[False] * (len(ids) - 2)])
    assert tokens.labels[:2] == ["[pad]", "<|endoftext|>"]
    assert tokens.find("<|endoftext|>") == 1


def test_tokenizers_of_transformers_are_read_fast_and_slow():
    transformers = pytest.importorskip("transformers")
    fast = of_words(["[UNK]", "al", "##ice"], decoders.WordPiece())
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="[UNK]")
    assert read(wrapped, [1, 2, 0]).labels == ["al", "##ice", "[UNK]"]
    slow = transformers.ByT5Tokenizer()
    tokens = read(slow, slow("猫 ab")["input_ids"])
    assert tokens.labels == ["猫:1", "猫:2", "猫:3", "␣", "a", "##b", "</s>"]


def test_a_slow_tokenizer_that_joins_by_at_signs_is_read():
    class Slow:
        all_special_ids = ()
        words = ("ca@@", "t", "sat")

        def __len__(self):
            return 3

        def convert_ids_to_tokens(self, i):
            return self.words[i]

        def convert_tokens_to_string(self, tokens):
            return " ".join(tokens).replace("@@ ", "")

    assert read(Slow(), [0, 1, 2, 2, 7]).labels == ["ca", "##t", "sat@2", "sat@3", "<id 7>"]


def test_words_are_numbered_and_read_back():
    pieces = TextTokens(["Al", "ice", " saw"])
    reader = WordReader([["The", "cat", "The"], pieces])
    assert reader.ids == [[0, 1, 0], [2, 3, 4]]
    assert reader.read([0, 1, 0], [False] * 3).labels == ["The@0", "cat", "The@2"]
    assert reader.read([2, 3, 4], [False] * 3) == pieces


def test_what_is_no_tokenizer_is_refused_with_what_is_accepted():
    with pytest.raises(ValueError, match=r"tokenizer is a dict; give a tokenizer of regard, of transformers or of the"):
        TokenReader({})


def test_a_reader_of_words_can_be_sent_to_another_process():
    reader = WordReader(["The", "cat"])
    tokens = reader.read([0, 1], [False, False])
    assert pickle.loads(pickle.dumps(reader)).read([0, 1], [False, False]).labels == tokens.labels
