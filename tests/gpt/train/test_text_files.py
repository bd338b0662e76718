"""Text files as a stream."""

import gzip
import lzma
import re
from itertools import pairwise

import pytest

from regard.gpt.train import text_files as text
from regard.gpt.train.text_files import check_text_file, pieces

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
    monkeypatch.setattr(text, "LONGEST", 50)
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
    monkeypatch.setattr(text, "LONGEST", 64)
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
