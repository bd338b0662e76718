"""The tokens of a report, and words in place of positions."""

import pytest
import torch

import regard
from heads import models
from heads.models import ids
from regard.heads.inputs.pieces import WordReader
from regard.heads.report.report import load_seen
from regard.heads.report.texts import find_word
from regard.support.tokens import TextTokens

NAMES = [f"w{i}" for i in range(53)]


class Names:
    """A tokenizer that calls every id by its number."""

    all_special_ids = (0,)

    def __len__(self):
        return 53

    def convert_ids_to_tokens(self, i):
        return NAMES[i]

    def convert_tokens_to_string(self, tokens):
        return " ".join(tokens)


def named(rows):
    return [[f"w{i}" for i in row] for row in rows.tolist()]


def stripped(texts):
    return [[piece.strip() for piece in text] for text in texts]


def watched(model, tokenizer=None, run=None, **inputs):
    with torch.no_grad(), regard.watch(model, tokenizer=Names() if tokenizer is None else tokenizer) as seen:
        (model if run is None else run)(**inputs)
    return seen


def test_tokens_are_those_of_each_text_of_the_batch():
    x = ids(2, 7)
    seen = watched(models.gpt2(), input_ids=x)
    assert stripped(seen.tokens) == named(x)
    assert seen[1].query_tokens == seen[1, 2].key_tokens == seen.tokens


def test_a_gpt_of_ours_brings_its_own_tokenizer():
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model, keep=False) as seen:
        model(torch.tensor([model.tokenizer.encode("Alice sat")]))
    assert [text.labels for text in seen.tokens] == [["Al", "##ice", "sat"]]


def test_without_tokenizer_or_ids_the_tokens_are_unknown_and_asking_says_what_to_give():
    model = models.gpt2()
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=ids())
    assert seen.tokens is None
    with pytest.raises(
        ValueError, match=r"'sat' cannot be looked up: no tokenizer is known; .*watch\(model, tokenizer=…\)"
    ):
        seen[0, 1].weights(rows="sat")
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=7, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 3, 6))
    with pytest.raises(
        ValueError, match=r'not called with token ids, so .*: watch\(model, tokens=\["The", "cat", …\]\)$'
    ):
        seen[0, 1].weights(rows="sat")
    embedded = watched(models.gpt2(), inputs_embeds=torch.randn(2, 7, 24))
    assert embedded.tokens is None
    with pytest.raises(ValueError, match=r"not called with token ids that can be seen; .*watch\(model, tokens=…\)"):
        embedded.at("sat", text=0)


def test_padding_is_marked_and_not_found():
    x, mask = ids(2, 7), torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1]])
    seen = watched(models.gpt2(), input_ids=x, attention_mask=mask)
    assert seen.tokens[1].padding == (True, True, *[False] * 5)
    assert seen.tokens[1].names[:2] == ["[pad]", "[pad]"]


def test_tokens_grow_during_generation():
    model, x = models.gpt2(), ids(2, 5)
    with torch.no_grad(), regard.watch(model, tokenizer=Names()) as seen:
        out = model.generate(x, max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert stripped(seen.tokens) == named(out[:, :-1])  # the last token is not read


def test_after_beam_search_the_tokens_are_those_of_the_texts_that_are_left():
    torch.manual_seed(7)
    model, x = models.gpt2(), ids(2, 5)
    with torch.no_grad(), regard.watch(model, tokenizer=Names()) as seen:
        model.generate(x, max_new_tokens=9, num_beams=3, do_sample=False, eos_token_id=None, pad_token_id=0)
    text = seen[0].record.steps[-1].call.origin.tokens
    assert torch.equal(text[:, :5], x.repeat_interleave(3, 0))
    assert stripped(seen.tokens) == named(text)


def test_an_encoder_and_a_decoder_have_tokens_of_their_own():
    x, y = ids(2, 7), ids(2, 5)
    seen = watched(models.t5(), input_ids=x, decoder_input_ids=y)
    sides = [(stripped(layer.query_tokens), stripped(layer.key_tokens)) for layer in seen]
    assert sides == [(named(x), named(x))] * 2 + [(named(y), named(y)), (named(y), named(x))] * 2
    with pytest.raises(ValueError, match=r"the layers read 2 different texts; choose a layer: seen\[0\]\.query_tokens"):
        _ = seen.tokens


def test_several_forwards_have_their_own_tokens():
    model, x, y = models.gpt2(), ids(2, 7), ids(2, 5)
    with torch.no_grad(), regard.watch(model, tokenizer=Names()) as seen:
        model(x)
        model(y)
    assert [stripped(run.tokens) for run in seen.forwards] == [named(x), named(y)]
    with pytest.raises(ValueError, match=r"2 forwards were seen; choose one: seen\.forwards\[0\]\.tokens"):
        _ = seen.tokens


def test_a_file_keeps_the_tokens(tmp_path):
    seen = watched(models.t5(), input_ids=ids(2, 7), decoder_input_ids=ids(2, 5))
    for keep in (None, False):
        seen.save(tmp_path / "seen.safetensors", keep=keep)
        again = load_seen(tmp_path / "seen.safetensors")
        assert [layer.query_tokens for layer in again] == [layer.query_tokens for layer in seen]
        assert [layer.key_tokens for layer in again] == [layer.key_tokens for layer in seen]


def test_words_of_a_model_without_ids_are_given_as_tokens():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=7, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer, tokens=["the", "cat", "the"]) as seen:
        layer(torch.randn(1, 3, 6))
    assert seen.tokens[0].labels == ["the@0", "cat", "the@2"]
    assert "induction" in seen[0, 1].summary  # equal words are equal tokens
    with (
        pytest.raises(ValueError, match=r'tokens is one string; give a list of words: \["The", "cat"\]'),
        regard.watch(layer, tokens="the cat"),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"have 1 to 2 words and must all be as long as the model's input"),
        regard.watch(layer, tokens=[["the", "cat"], ["the"]]),
    ):
        pass
    with (
        pytest.raises(ValueError, match="tokens are words, which need no tokenizer; leave one of them out"),
        regard.watch(layer, tokens=["the"], tokenizer=Names()),
    ):
        pass


def alice():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=7, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer, tokens=[TextTokens(["Al", "ice", " saw", " a", " cat"])]) as seen:
        layer(torch.randn(1, 5, 6))
    return seen


def test_words_stand_for_their_positions():
    seen = alice()
    head, everything = seen[0, 1], seen[0, 1].weights()
    torch.testing.assert_close(head.weights(rows="saw"), everything[:, 2:3])
    torch.testing.assert_close(head.weights(rows="cat", cols=["a", "Alice", 2]), everything[:, 4:5][..., [3, 0, 1, 2]])
    torch.testing.assert_close(seen[0].weights(cols="Alice")[:, 1], everything[..., :2])
    torch.testing.assert_close(seen.rollout("Alice"), seen.rollout([0, 1]))


def test_a_word_at_different_positions_is_asked_for_in_one_text():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=7, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer, tokens=[["a", "cat", "sat"], ["cat", "and", "dog"]]) as seen:
        layer(torch.randn(2, 3, 6))
    everything = seen[0, 1].weights()
    with pytest.raises(
        ValueError, match=r"'cat' is at position 1 in text 0 and at position 0 in text 1; choose one: text=0 or text=1$"
    ):
        seen[0, 1].weights(rows="cat")
    with pytest.raises(ValueError, match=r"text 1: no token is called 'sat'; this text has cat, and, dog"):
        seen[0, 1].weights(rows="sat")
    torch.testing.assert_close(seen[0, 1].weights(rows="cat", text=1), everything[1:, 0:1])
    torch.testing.assert_close(seen.rollout("cat", text=-2), seen.rollout([1])[:1])
    with pytest.raises(ValueError, match=r"text 2 does not exist: there are 2, 0 to 1"):
        seen[0, 1].weights(text=2)


def test_a_word_is_found_where_all_texts_have_it_at_one_place():
    reader = WordReader([["a", "b"], ["c", "b"]])
    texts = [reader.read(row, [False, False]) for row in reader.ids]
    assert find_word("b", texts, "") == range(1, 2)


def test_of_more_than_two_texts_the_first_and_the_last_are_offered():
    texts = [TextTokens(["b"]), TextTokens(["a", " b"]), TextTokens(["b"])]
    with pytest.raises(ValueError, match=r"'b' is at position 0 in text 0 and .*; choose one: text=0 to text=2$"):
        find_word("b", texts, "")
