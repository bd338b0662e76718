"""Text files as files of tokens."""

import gzip
import json
import lzma
import os
import re
from itertools import pairwise

import pytest
import torch

from regard.gpt.tokenizer.tokenizer import Tokenizer
from regard.gpt.train import tokens as tokens_module
from regard.gpt.train.tokens import Tokens, check_text_file, pieces, tokenize_files, train_tokenizer

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


POEM = "Ein Blick,\n\n  zwei Blicke —\n<|endoftext|>\nnaïve 🐈\r\n\tund Schluß\n\n" * 7


def written(path, content=POEM):
    raw = content if isinstance(content, bytes) else content.encode()
    if path.suffix == ".gz":
        raw = gzip.compress(raw)
    path.write_bytes(lzma.compress(raw) if path.suffix == ".xz" else raw)
    return path


@pytest.mark.parametrize("name", ["poem.txt", "poem.gz", "poem.xz", "poem"])
@pytest.mark.parametrize("size", [1, 2, 13, 1 << 16])
def test_pieces_are_the_text_whatever_is_read_at_a_time(tmp_path, name, size):
    assert "".join(pieces(written(tmp_path / name), size)) == POEM


def test_a_piece_ends_where_something_visible_begins_a_line(tmp_path):
    found = list(pieces(written(tmp_path / "poem.txt"), 13))
    assert len(found) > 10
    for before, after in pairwise(found):
        assert before.endswith("\n")
        assert not after[0].isspace()


def test_a_line_without_end_is_cut_before_a_blank_and_never_in_the_end_sign(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens_module, "LONGEST", 50)
    words = "seven words and no line break at all " * 9
    found = list(pieces(written(tmp_path / "a.txt", words), 7))
    assert "".join(found) == words
    assert len(found) > 5
    assert all(piece.startswith(" ") for piece in found[1:])
    signs = "x<|endoftext|>" * 30
    found = list(pieces(written(tmp_path / "b.txt", signs), 7))
    assert "".join(found) == signs
    assert sum(piece.count("<|endoftext|>") for piece in found) == 30


@pytest.mark.parametrize("before", range(16))
def test_an_end_sign_that_begins_before_the_cut_stays_whole(tmp_path, monkeypatch, before):
    monkeypatch.setattr(tokens_module, "LONGEST", 64)
    line = "x" * (40 + before) + "<|endoftext|>" + "y" * 64
    for size in (1, 7, 64, 128):
        found = list(pieces(written(tmp_path / "long.txt", line), size))
        assert "".join(found) == line
        assert sum(piece.count("<|endoftext|>") for piece in found) == 1


@pytest.mark.parametrize("size", [1, 3, 4, 1 << 16])
def test_bytes_that_are_no_text_are_named_with_their_place(tmp_path, size):
    path = written(tmp_path / "bad.txt", "good text é".encode() + b"\xff and more")
    with pytest.raises(ValueError, match=r"bad.txt is not UTF-8 text: byte 12 is 0xff; convert it"):
        list(pieces(path, size))


def test_half_a_letter_at_the_end_is_no_text(tmp_path):
    path = written(tmp_path / "cut.txt", "abcé".encode()[:-1])
    with pytest.raises(ValueError, match=r"cut.txt is not UTF-8 text: byte 3 is 0xc3"):
        list(pieces(path, 2))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_damaged_archive_is_said(tmp_path, suffix):
    path = written(tmp_path / f"poem{suffix}", "".join(chr(97 + n * n % 26) for n in range(9999)))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(
        ValueError, match=rf"poem{suffix} is damaged, or no {suffix} file: .* bytes of text; get it again"
    ):
        list(pieces(path))
    path.write_bytes(b"plain text, wrong name")
    with pytest.raises(ValueError, match=rf"is damaged, or no {suffix} file"):
        list(pieces(path))


def test_what_is_not_there_or_empty_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"nothing.txt is not there; check the path"):
        list(pieces(tmp_path / "nothing.txt"))
    with pytest.raises(ValueError, match=r"is a directory; name the files in it"):
        list(pieces(tmp_path))
    with pytest.raises(ValueError, match=r"empty.gz is empty; give it some text"):
        list(pieces(written(tmp_path / "empty.gz", "")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is a PNG image, not text; give text files in UTF-8: .txt, .gz or .xz"),
        (b"%PDF-1.7\n", "is a PDF document, not text"),
        (b"\x1f\x8b\x08\0", "is a gzip archive without .gz in its name, not text"),
        ("cat".encode("utf-16"), "is text in UTF-16, not in UTF-8; give text files in UTF-8"),
        (b"some\0bytes", "is binary data, not text"),
    ],
)
def test_a_file_that_is_no_text_says_what_it_is_and_not_which_byte(content, message, tmp_path):
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"data file {tmp_path / 'x.png'} {message}")):
        check_text_file(tmp_path / "x.png")
