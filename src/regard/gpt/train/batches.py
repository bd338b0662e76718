"""Batches: which windows of the tokens each step reads.

That depends on the seed and the step's number alone, so that a run can resume anywhere.
"""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from regard.support.argument_names import named
from regard.support.arguments import check_share, check_whole


class Batches:
    """The windows that each step reads: each once per epoch, in an order that depends on seed and epoch alone.

    >>> batches = Batches(torch.arange(100), batch=2, context_length=8, seed=1)
    >>> ids, targets = batches(0)
    >>> ids.shape, bool((targets == ids + 1).all())
    (torch.Size([2, 8]), True)

    rank, ranks: with data parallelism, each rank reads its own rows of the same batch.
    repeat: the fraction of rows that repeat one part of their text over and over, half of them shuffled first. In such
        a row the next token can be predicted by finding the same token earlier, so induction heads form early; where
        the text is shuffled, there is no other way to predict it.
    """

    def __init__(
        self,
        tokens: Integer[Tensor, "N"],
        batch: int,
        context_length: int,
        seed: int,
        rank: int = 0,
        ranks: int = 1,
        repeat: float = 0.0,
    ) -> None:
        check_whole(batch=batch, context_length=context_length)
        if len(tokens) <= context_length:
            raise ValueError(f"{len(tokens)} tokens hold no window of context_length + 1 = {context_length + 1}")
        check_share("repeat", repeat, "0 is none, 0.05 is plenty")
        self.tokens, self.batch, self.context_length = tokens, batch, context_length
        self.seed, self.repeat = seed, repeat
        self.rows = rows_of_rank(batch, rank, ranks)
        # One window less than would fit, so that each epoch can begin at another offset.
        self.windows = max(1, (len(tokens) - context_length) // context_length)
        self._epochs: dict[int, tuple[int, Tensor]] = {}  # the last two: a batch may end in the next epoch

    def __call__(self, step: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """The ids of a step, and the tokens that follow each."""
        starts = [self.start(step * self.batch + row) for row in self.rows]
        rows = torch.stack([self.tokens[at : at + self.context_length + 1] for at in starts]).to(torch.int64)
        if self.repeat:
            self._repeat(rows, step)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def _repeat(self, rows: Tensor, step: int) -> None:
        """Make some rows repeat a few of their tokens. The period is random, so that it cannot be learned."""
        generator = torch.Generator().manual_seed(derive_seed("repeat", self.seed, step))
        chosen = (torch.rand(self.batch, generator=generator) < self.repeat).nonzero()[:, 0].tolist()
        longest = max(3, self.context_length // 2)
        for number in chosen:  # also those of other ranks, so that all ranks draw the same numbers
            length = int(torch.randint(max(2, longest // 8), longest, (), generator=generator))
            order = torch.arange(self.context_length + 1)
            if torch.rand((), generator=generator) < 0.5:
                order = torch.randperm(self.context_length + 1, generator=generator)
            if number in self.rows:
                row = rows[number - self.rows.start]
                row.copy_(row[order[torch.arange(len(row)) % length]])

    def start(self, number: int) -> int:
        """Where the `number`-th window since the start of training begins."""
        epoch, index = divmod(number, self.windows)
        if epoch not in self._epochs:
            self._epochs = {**dict(list(self._epochs.items())[-1:]), epoch: self._shuffled(epoch)}
        first, order = self._epochs[epoch]
        return first + int(order[index]) * self.context_length

    def _shuffled(self, epoch: int) -> tuple[int, Tensor]:
        """Where the first window of an epoch begins, and the order of its windows."""
        generator = torch.Generator().manual_seed(derive_seed("epoch", self.seed, epoch))
        spare = min(len(self.tokens) - 1 - self.windows * self.context_length, self.context_length - 1)
        first = int(torch.randint(spare + 1, (), generator=generator))
        dtype = torch.int32 if self.windows < 1 << 31 else None
        return first, torch.randperm(self.windows, generator=generator, dtype=dtype)


def rows_of_rank(batch: int, rank: int, ranks: int) -> range:
    """The rows of a batch that a data-parallel rank reads: of 6 rows and 3 ranks, rank 1 reads range(2, 4)."""
    if batch % ranks:
        rule = f"must be divisible by the {ranks} processes that share it; try {-(-batch // ranks) * ranks}"
        raise ValueError(f"{named('batch', batch)} {rule}")
    return range(rank * batch // ranks, (rank + 1) * batch // ranks)


def derive_seed(*parts: object) -> int:
    """A seed from several values, by a hash: neighbouring values give unrelated seeds."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "little")
