"""The windows that steps read."""

import pytest
import torch

from regard.gpt.train.batches import Batches, derive_seed


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
