"""Files of tokens, and the windows that steps read from them."""

import json
import os

import pytest
import torch

from regard.gpt.tokenizer import Tokenizer
from regard.gpt.train import data
from regard.gpt.train.data import Batches, Tokens, derive_seed, tokenize_files, train_tokenizer
from regard.gpt.train.text_files import pieces

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
    monkeypatch.setattr(data, "PIECES_PER_BATCH", 3)
    monkeypatch.setattr(data, "pieces", lambda path: pieces(path, 17))
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

        def encode_batch(self, texts):
            return [[65_536 + i for i in ids] for ids in tokenizer.encode_batch(texts)]

    found = tokenize_files([text], Large(), tmp_path / "run")
    assert found.ids.tolist() == [*(65_536 + i for i in tokenizer.encode(TEXT)), 69_999]
    assert json.loads((tmp_path / "run" / "tokens.json").read_text())["dtype"] == "uint32"


def test_the_second_start_finds_the_tokens(text, tokenizer, tmp_path, monkeypatch):
    first = tokenize_files([text], tokenizer, tmp_path / "run")
    assert first.new == "read for the first time"
    monkeypatch.setattr(data, "_write", None)
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
        (15, 0.1, r"the data has 15 tokens, but context_length=7 needs 8 tokens for training and 8 for validation"),
        (
            7,
            0.0,
            r"the data has 7 tokens, but context_length=7 needs 8 tokens for training; give more text, or a shorter",
        ),
        (0, 0.1, r"the data has 0 tokens.* or a longer text"),
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


def starts(batches, epoch):
    return [batches.start(epoch * batches.windows + n) for n in range(batches.windows)]


@pytest.mark.parametrize("count", [8, 13, 14, 15, 50, 101])
def test_an_epoch_reads_every_window_once_and_no_two_are_alike(count):
    batches = Batches(torch.arange(count), batch=3, context_length=7, seed=5)
    seen = []
    for epoch in range(5):
        here = sorted(starts(batches, epoch))
        assert [at - here[0] for at in here] == [7 * n for n in range(batches.windows)]
        assert here[0] >= 0
        assert here[-1] + 7 < count
        seen.append(starts(batches, epoch))
    if count > 50:
        assert len({tuple(order) for order in seen}) == 5
        assert len({min(order) for order in seen}) > 1  # each epoch begins at another place


def test_what_a_step_reads_depends_on_seed_and_step_alone():
    def read(step, seed=3):
        return Batches(torch.arange(1000), 4, 7, seed)(step)

    walked = Batches(torch.arange(1000), 4, 7, 3)
    for step in range(90):  # more than two epochs
        ids, targets = walked(step)
        assert ids.equal(read(step)[0])
        assert targets.equal(ids + 1)
    assert walked(5)[0].equal(read(5)[0])  # and backwards
    assert not read(5)[0].equal(read(5, seed=4)[0])


def test_ranks_share_out_the_rows_of_one_batch():
    whole = Batches(torch.arange(1000), 6, 7, 3)(11)[0]
    parts = [Batches(torch.arange(1000), 6, 7, 3, rank, 3)(11)[0] for rank in range(3)]
    assert torch.cat(parts).equal(whole)
    with pytest.raises(ValueError, match=r"batch \(7\) must be divisible by the 3 processes that share it; try 9"):
        Batches(torch.arange(1000), 7, 7, 3, 0, 3)


def test_two_small_batches_are_one_large_one():
    small, large = Batches(torch.arange(1000), 3, 7, 3), Batches(torch.arange(1000), 6, 7, 3)
    assert torch.cat([small(8)[0], small(9)[0]]).equal(large(4)[0])


def test_too_few_tokens_for_a_window_is_said():
    with pytest.raises(ValueError, match=r"7 tokens hold no window of context_length \+ 1 = 8"):
        Batches(torch.arange(7), 1, 7, 3)


def test_seeds_of_neighbours_have_nothing_in_common():
    seeds = {derive_seed("step", seed, step) for seed in range(20) for step in range(20)}
    assert len(seeds) == 400


def test_some_rows_say_a_stretch_again_and_again():
    plain = Batches(torch.arange(4000), batch=16, context_length=64, seed=3)
    often = Batches(torch.arange(4000), batch=16, context_length=64, seed=3, repeat=0.5)
    lengths, shuffled = set(), 0
    for step in range(5):
        (ids, targets), (whole, ends) = often(step), plain(step)
        torch.testing.assert_close(ids[:, 1:], targets[:, :-1])
        for row, was, end in zip(ids, whole, ends[:, -1], strict=True):
            length = int((row[1:] == row[0]).nonzero()[0]) + 1 if (row[1:] == row[0]).any() else 64
            torch.testing.assert_close(row, row[torch.arange(64) % length])
            lengths.add(length)
            if row[0] != was[0] or not torch.equal(row[:length], was[:length]):
                shuffled += 1
                assert set(row[:length].tolist()) <= {*was.tolist(), int(end)}
                assert len(row[:length].unique()) == length
    assert 64 in lengths  # some are as they were
    assert len(lengths) > 10
    assert min(lengths) >= 4
    assert 10 < shuffled < 30  # of about 40 that repeat
    torch.testing.assert_close(often(2), often(2))


def test_processes_repeat_the_same_rows_of_a_batch():
    whole = Batches(torch.arange(4000), batch=6, context_length=32, seed=3, repeat=0.5)
    parts = [Batches(torch.arange(4000), 6, 32, 3, rank=rank, ranks=3, repeat=0.5) for rank in range(3)]
    torch.testing.assert_close(torch.cat([part(7)[0] for part in parts]), whole(7)[0])


def test_a_share_of_repeated_rows_is_a_share():
    with pytest.raises(ValueError, match=r"repeat \(1.5\) must be at least 0 and below 1; 0 is none, 0.05 is plenty"):
        Batches(torch.arange(400), batch=2, context_length=32, seed=3, repeat=1.5)
