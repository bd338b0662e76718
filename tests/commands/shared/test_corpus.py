"""Text, jsonl and token files as rows; and what is no corpus."""

import gzip
import json

import numpy as np
import pytest

from regard.commands.shared.corpus import RowForm, batches_of, find_files, fingerprints, rows_of

END = "<|endoftext|>"


def form(length=8, vocab_size=256, between=(0,), **others):
    """Characters are tokens."""
    return RowForm(lambda texts: [[ord(one) for one in text] for text in texts], length, vocab_size, between, **others)


def rows(*paths, **options):
    return list(rows_of(paths, form(**options)))


def test_a_text_is_cut_into_rows_of_one_length_and_a_rest(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("the cat sat on the mat")
    assert ["".join(map(chr, row)) for row in rows(path)] == ["the cat ", "sat on t", "he mat"]
    assert rows(path, length=22) == [[ord(one) for one in "the cat sat on the mat"]]


def test_files_do_not_run_into_one_another(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"file {name}!")
    both = rows(tmp_path / "a.txt", tmp_path / "b.txt")
    assert both == rows(tmp_path / "a.txt") + rows(tmp_path / "b.txt")


def test_an_end_in_a_text_is_the_tokenizers_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"one{END}two{END}")
    assert rows(path, length=32) == [[*map(ord, "one"), 0, *map(ord, "two"), 0]]


def test_each_line_of_jsonl_is_a_text(tmp_path):
    lines = [json.dumps({"text": "one\ntwo", "more": [1]}), "", json.dumps("three"), json.dumps({"text": ""})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    expected = [[*map(ord, "one\ntwo"), 0, *map(ord, "three"), 0, 0]]
    assert rows(tmp_path / "a.jsonl", length=64) == rows(tmp_path / "b.jsonl.gz", length=64) == expected


def test_special_tokens_are_around_every_row(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("abcdefg")
    around = {"before": [1], "after": [2, 3]}
    assert rows(path, length=8, **around) == [[1, *map(ord, "abcde"), 2, 3], [1, *map(ord, "fg"), 2, 3]]


def test_token_files_are_read_as_they_are(tmp_path):
    ids = np.arange(100, dtype=np.uint16) % 7
    np.save(tmp_path / "a.npy", ids.astype(np.int32))
    ids.tofile(tmp_path / "tokens.bin")
    (tmp_path / "tokens.json").write_text(json.dumps({"dtype": "uint16", "count": 100}))
    cut = [ids[at : at + 8].tolist() for at in range(0, 100, 8)]
    assert rows(tmp_path / "a.npy") == rows(tmp_path / "tokens.bin") == cut


@pytest.mark.parametrize(("size", "tokens"), [(1, None), (3, None), (2, 19), (3, 16), (2, 17)])
def test_batches_have_rows_of_one_length_and_end_at_the_last_token(size, tokens):
    some = [[1] * 8, [2] * 8, [3] * 5, [4] * 8, [5] * 8, [6] * 8]
    batches = list(batches_of(iter(some), size, tokens))
    flat = [one for batch in batches for row in batch for one in row]
    everything = [one for row in some for one in row]
    kept = tokens if tokens != 17 else 16  # one token alone is no row
    assert flat == everything[:kept]
    assert all(len({len(row) for row in batch}) == 1 and len(batch) <= size for batch in batches)


def test_a_directory_is_its_files_in_order(tmp_path):
    for name in ("b.txt", "a.jsonl", "inner/c.md", ".hidden/d.txt", "model.safetensors", "weights.bin", "tokens.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('"text"')
    assert [path.name for path in find_files([str(tmp_path)])] == ["a.jsonl", "b.txt", "c.md", "tokens.bin"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"--data .*: no file in it ends in \.txt"):
        find_files([str(tmp_path / "empty")])


def test_a_file_that_changed_has_another_fingerprint(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one")
    before = fingerprints([path])
    path.write_text("one more")
    assert fingerprints([path]) != before == [["a.txt", 3, before[0][2]]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "data file .* is empty"),
        ("a.txt", b"\x89PNG\r\n", "is a PNG image, not text"),
        ("a.txt", b"text\0more", "is binary data, not text"),
        ("missing.txt", None, "is not there; check the path"),
    ],
)
def test_what_is_no_text_is_said_before_anything_is_read(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        find_files([str(tmp_path / name)])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"caf\xe9 au lait", "is not UTF-8 text: byte 3 is 0xe9"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', r"line 2 of .*a\.jsonl is no JSON"),
        ("a.jsonl", b'{"title": "a"}', r'line 1 of .* has no text; each line is \{"text": "…"\}, or a string'),
        ("a.jsonl", b"[1, 2]", "line 1 of .* has no text"),
        ("a.jsonl", b"[" * 300_000, "line 1 of .* is no JSON: it has too many values"),
        ("a.npy", b"\x93NUMPY nonsense", "is no array of numpy"),
        ("tokens.bin", b"\1\0\2\0", r"needs the tokens\.json that regard train writes beside it"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        rows(tmp_path / name)


def test_a_pickle_is_never_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="is no array of numpy"):
        rows(tmp_path / "a.npy")


def test_ids_outside_the_vocabulary_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1, 2, 300, 4]))
    with pytest.raises(ValueError, match=r"a\.npy has token id 300, and the model knows 0 to 255"):
        rows(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.array([1, -2]))
    with pytest.raises(ValueError, match="has token id -2"):
        rows(tmp_path / "b.npy")
    np.save(tmp_path / "c.npy", np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"has float64 of shape \(2, 3\); token ids are whole numbers"):
        rows(tmp_path / "c.npy")


def test_one_endless_line_is_streamed_and_one_of_jsonl_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("ab " * 3_000_000)
    some = rows_of([tmp_path / "a.txt"], form(length=512))
    assert "".join(map(chr, next(some))) == ("ab " * 171)[:512]
    monkeypatch.setattr("regard.commands.shared.corpus._LONGEST_LINE", 1 << 22)
    (tmp_path / "a.jsonl").write_text('{"text": "' + "ab " * 3_000_000)
    with pytest.raises(ValueError, match=r"line 1 of .* has more than 4,194,304 characters; split it"):
        rows(tmp_path / "a.jsonl")
