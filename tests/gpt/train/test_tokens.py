"""Text files as files of tokens."""

import json
import os

import pytest
import torch

from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train import tokens as tokens_module
from regard.gpt.train.text_files import pieces
from regard.gpt.train.tokens import Tokens, tokenize_files, train_tokenizer

TEXT = "The cat sat on the mat.\n\nThe dog — naïve 🐕 — sat there too.\n" * 11


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT], vocab_size=280)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_a_text_becomes_its_tokens_and_an_end(text, tokenizer, tmp_path):
    found = tokenize_files([text], tokenizer, tmp_path / "run")
    assert found.ids.tolist() == [*tokenizer.encode(TEXT), tokenizer.end]
    assert found.ids.dtype is torch.uint16
    assert found.vocab_size == tokenizer.vocab_size


def test_small_pieces_have_the_tokens_of_the_whole(text, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(tokens_module, "PIECES_PER_BATCH", 3)
    monkeypatch.setattr(tokens_module, "pieces", lambda path: pieces(path, 17))
    found = tokenize_files([text], tokenizer, tmp_path / "run")
    assert found.ids.tolist() == [*tokenizer.encode(TEXT), tokenizer.end]


def test_documents_are_parted_by_the_end_token_in_and_between_files(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("one<|endoftext|>two")
    (tmp_path / "b.txt").write_text("three<|endoftext|>")
    found = tokenize_files([tmp_path / "a.txt", tmp_path / "b.txt"], tokenizer, tmp_path / "run").ids.tolist()
    one, two, three = (tokenizer.encode(word) for word in ("one", "two", "three"))
    assert found == [*one, 0, *two, 0, *three, 0]


def test_a_large_vocabulary_needs_four_bytes(text, tokenizer, tmp_path, without_shape_checks):
    class Large:
        end, vocab_size = 69_999, 70_000

        def to_json(self):
            return "large"

        def encode_batch(self, texts):
            return [[65_536 + i for i in ids] for ids in tokenizer.encode_batch(texts)]

    found = tokenize_files([text], Large(), tmp_path / "run")
    assert found.ids.tolist() == [*(65_536 + i for i in tokenizer.encode(TEXT)), 69_999]
    assert json.loads((tmp_path / "run" / "tokens.json").read_text())["dtype"] == "uint32"


def test_the_second_start_finds_the_tokens(text, tokenizer, tmp_path, monkeypatch):
    first = tokenize_files([text], tokenizer, tmp_path / "run")
    assert first.new == "read for the first time"
    monkeypatch.setattr(tokens_module, "_write", None)
    again = tokenize_files([text], tokenizer, tmp_path / "run")
    assert (again.new, again.sha256) == ("", first.sha256)
    assert again.ids.tolist() == first.ids.tolist()


def test_a_changed_file_or_tokenizer_is_noticed(text, tokenizer, tmp_path):
    first = tokenize_files([text], tokenizer, tmp_path / "run")
    middle = TEXT[: len(TEXT) // 2] + "!" + TEXT[len(TEXT) // 2 + 1 :]
    text.write_text(middle)
    os.utime(text, ns=(1, 1))
    changed = tokenize_files([text], tokenizer, tmp_path / "run")
    assert changed.new == "text.txt changed"
    assert changed.sha256 != first.sha256
    other = Tokenizer.train([TEXT], vocab_size=270)
    assert tokenize_files([text], other, tmp_path / "run").new == "the tokenizer has changed"
    assert tokenize_files([text, text], other, tmp_path / "run").new == "the list of files has changed"
    (tmp_path / "run" / "tokens.bin").write_bytes(b"12")
    assert tokenize_files([text, text], other, tmp_path / "run").new == "tokens.bin is incomplete"


def test_swapped_halves_of_the_tokens_are_noticed_and_written_again(text, tokenizer, tmp_path):
    first = tokenize_files([text], tokenizer, tmp_path / "run").ids.tolist()
    path = tmp_path / "run" / "tokens.bin"
    right, half = path.read_bytes(), path.stat().st_size // 2
    path.write_bytes(right[half:] + right[:half])
    assert tokenize_files([text], tokenizer, tmp_path / "run", verify=False).new == ""
    again = tokenize_files([text], tokenizer, tmp_path / "run")
    assert again.new == "tokens.bin or tokens.json is damaged"
    assert again.ids.tolist() == first
    assert path.read_bytes() == right


@pytest.mark.parametrize(
    "change",
    [
        lambda d: [],
        lambda d: {},
        lambda d: {key: value for key, value in d.items() if key != "sources"},
        lambda d: d | {"sources": [7]},
        lambda d: d | {"sources": [{}]},
        lambda d: d | {"count": "7"},
        lambda d: d | {"count": True},
        lambda d: d | {"sha256": None},
        lambda d: d | {"dtype": 16},
        lambda d: d | {"dtype": "uint8"},
        lambda d: d | {"dtype": "uint32", "count": d["count"] // 2},
        lambda d: d | {"count": 0},
        lambda d: d | {"form": 7},
    ],
)
def test_a_damaged_description_is_written_again_and_never_believed(text, tokenizer, tmp_path, change):
    first = tokenize_files([text], tokenizer, tmp_path / "run").ids.tolist()
    path = tmp_path / "run" / "tokens.json"
    right = path.read_text()
    path.write_text(json.dumps(change(json.loads(right))))
    again = tokenize_files([text], tokenizer, tmp_path / "run")
    assert again.new
    assert again.ids.tolist() == first
    assert path.read_text() == right


def test_a_description_that_is_no_text_is_written_again(text, tokenizer, tmp_path):
    tokenize_files([text], tokenizer, tmp_path / "run")
    (tmp_path / "run" / "tokens.json").write_bytes(b"\xff\xfe")
    assert tokenize_files([text], tokenizer, tmp_path / "run").new == "tokens.json is damaged"


def test_a_write_that_fails_leaves_no_notes_that_lie(text, tokenizer, tmp_path):
    tokenize_files([text], tokenizer, tmp_path / "run")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"ok\nok\xff")
    with pytest.raises(ValueError, match=r"bad.txt is not UTF-8"):
        tokenize_files([text, bad], tokenizer, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["tokens.bin"]
    assert tokenize_files([text], tokenizer, tmp_path / "run").new == "read for the first time"


def test_a_tokenizer_of_ones_own_is_made_from_the_text_and_not_of_the_end_sign(tmp_path):
    (tmp_path / "a.txt").write_text("abab<|endoftext|>" * 99)
    found = train_tokenizer([tmp_path / "a.txt"], 262)
    assert "abab" in {found.token(i) for i in range(found.vocab_size)}
    assert not any("endo" in found.token(i) for i in range(1, found.vocab_size))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", r"data file .*empty.txt is empty; give it some text"),
        ("gone.txt", None, r"data file .*gone.txt is not there; check the path"),
    ],
)
def test_a_file_with_nothing_in_it_is_said(name, content, message, tokenizer, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        tokenize_files([tmp_path / name], tokenizer, tmp_path / "run")


def test_no_files_and_no_end_are_said(tokenizer, tmp_path, without_shape_checks):
    with pytest.raises(ValueError, match="no data files; name at least one"):
        tokenize_files([], tokenizer, tmp_path)

    class Endless:
        end, vocab_size = None, 280

        def to_json(self):
            return "endless"

    (tmp_path / "a.txt").write_text("one<|endoftext|>two")
    with pytest.raises(ValueError, match=r"a.txt holds <\|endoftext\|>, but this tokenizer has no such token"):
        tokenize_files([tmp_path / "a.txt"], Endless(), tmp_path)


def test_the_last_tokens_are_for_validation_at_least_one_context():
    tokens = Tokens.of(torch.arange(1000))
    training, validation = tokens.split(context_length=7, val_fraction=0.1)
    assert torch.cat([training, validation]).equal(torch.arange(1000))
    assert len(validation) == 100
    assert len(tokens.split(context_length=7, val_fraction=0.001)[1]) == 8
    assert len(tokens.split(context_length=7, val_fraction=0.0)[1]) == 0


@pytest.mark.parametrize(
    ("count", "fraction", "message"),
    [
        (
            15,
            0.1,
            r"the data has 15 tokens, but context_length=7 needs 16, 8 for training and 8 for validation; "
            r"give more text, or a shorter context: context_length=6",
        ),
        (
            7,
            0.0,
            r"the data has 7 tokens, but context_length=7 needs 8; give more text, or a shorter",
        ),
        (0, 0.1, r"the data has 0 tokens.*; give more text$"),
        (99, 1.0, r"val_fraction \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_a_text_shorter_than_a_context_says_what_would_fit(count, fraction, message):
    with pytest.raises(ValueError, match=message):
        Tokens.of(torch.zeros(count, dtype=torch.int64)).split(7, fraction)


def test_the_shorter_context_that_is_advised_fits():
    parts = Tokens.of(torch.zeros(15, dtype=torch.int64)).split(15 // 2 - 1, 0.1)
    assert [len(part) for part in parts] == [8, 7]  # a window of seven in each


def test_ids_tell_whether_they_are_the_same():
    one, other = Tokens.of(torch.arange(100_000)), Tokens.of(torch.arange(100_000).flip(0))
    assert one.sha256 != other.sha256
    assert one.sha256 == Tokens.of(torch.arange(100_000, dtype=torch.int32)).sha256
    assert one.vocab_size == 100_000
