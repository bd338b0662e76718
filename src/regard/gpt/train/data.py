"""Training data: text files become one file of tokens, once; steps read windows of it in an order that needs no memory.

Text is read as a stream, so files may be larger than the machine. The tokens lie in a memory-mapped file, and which
windows a step reads follows from the seed and the step alone: a run goes on anywhere, as if it had never stopped.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from regard.arguments import check_share, check_whole
from regard.files import atomically
from regard.gpt.train.text_files import END, check_file, pieces

if TYPE_CHECKING:
    from regard.gpt.tokenizer import Tokenizer

TOKENS, NOTES = "tokens.bin", "tokens.json"
FORM = 1  # of both files; raised when what they hold is written in another way
AT_ONCE = 64  # pieces of text tokenised side by side


@dataclass(frozen=True)
class Tokens:
    """A text as token ids, in memory or in a file, and what tells it from another.

    >>> tokens = Tokens.of(torch.arange(100))
    >>> training, validation = tokens.split(context_length=8, val_fraction=0.1)
    >>> len(training), len(validation)
    (90, 10)
    """

    ids: Integer[Tensor, "N"]
    vocab_size: int  # no id is as large as this
    sha256: str
    new: str = ""  # why the file was written; nothing where one was found

    @staticmethod
    def of(ids: Integer[Tensor, "N"]) -> Tokens:
        """Token ids that are in memory already."""
        if ids.dim() != 1 or ids.is_floating_point():
            raise ValueError(
                f"ids must be whole numbers of shape (N,), but are {ids.dtype} of shape {tuple(ids.shape)}"
            )
        ids = ids.to("cpu", torch.int64).contiguous()
        if len(ids) and int(ids.min()) < 0:
            raise ValueError(f"token ids must be at least 0, but one is {int(ids.min())}")
        digest = hashlib.sha256()
        for part in ids.split(1 << 16):
            digest.update(array("q", part.tolist()).tobytes())
        return Tokens(ids, int(ids.max()) + 1 if len(ids) else 0, digest.hexdigest())

    def split(self, context_length: int, val_fraction: float) -> tuple[Integer[Tensor, "M"], Integer[Tensor, "K"]]:
        """The part to learn from, and the last `val_fraction` of it to be judged by: at least one context, or none."""
        check_whole(context_length=context_length)
        check_share("val_fraction", val_fraction, "0.01 is usual, 0 is none")
        window = context_length + 1  # each token of a context, and the one after it
        apart = max(int(len(self.ids) * val_fraction), window) if val_fraction else 0
        if len(self.ids) - apart < window:
            needs = f"{window} tokens to learn from" + (f" and {window} to be judged by" if apart else "")
            longest = len(self.ids) // (2 if apart else 1) - 1
            remedy = f"a shorter context (--context-length {longest})" if longest > 1 else "a longer text"
            raise ValueError(
                f"the data has {len(self.ids):,} tokens, but context_length={context_length} needs {needs}; "
                f"give more text, or {remedy}"
            )
        return self.ids[: len(self.ids) - apart], self.ids[len(self.ids) - apart :]


class Batches:
    """Which windows each step reads: every one once an epoch, shuffled anew each time, by seed and step alone.

    >>> batches = Batches(torch.arange(100), batch=2, context_length=8, seed=1)
    >>> ids, targets = batches(0)
    >>> ids.shape, bool((targets == ids + 1).all())
    (torch.Size([2, 8]), True)

    rank, ranks: where many processes share a batch, each takes its rows of the same one.
    repeat: the share of rows that say a stretch of their text again and again, half of them shuffled first.
        There, looking back for what came after the same token pays at once: a reason for heads that do so (induction)
        to form. Shuffled text leaves no other way.
    """

    def __init__(
        self, tokens: Integer[Tensor, "N"], batch: int, context_length: int, seed: int, rank: int = 0, ranks: int = 1,
        repeat: float = 0.0,
    ) -> None:  # fmt: skip
        check_whole(batch=batch, context_length=context_length)
        if len(tokens) <= context_length:
            raise ValueError(f"{len(tokens)} tokens hold no window of context_length + 1 = {context_length + 1}")
        check_share("repeat", repeat, "0 is none, 0.05 is plenty")
        self.tokens, self.batch, self.context_length, self.seed = tokens, batch, context_length, seed
        self.repeat = repeat
        self.rows = shared_rows(batch, rank, ranks)
        # One window less than there is room for, so that each epoch can begin at another place.
        self.windows = max(1, (len(tokens) - context_length) // context_length)
        self._epochs: dict[int, tuple[int, Tensor]] = {}

    def __call__(self, step: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """The ids of a step, and the tokens that follow each."""
        starts = [self.start(step * self.batch + row) for row in self.rows]
        found = torch.stack([self.tokens[at : at + self.context_length + 1] for at in starts]).to(torch.int64)
        if self.repeat:
            self._repeat(found, step)
        return found[:, :-1].contiguous(), found[:, 1:].contiguous()

    def _repeat(self, found: Tensor, step: int) -> None:
        """Let some rows go round and round in a few of their tokens: how many differs, so that counting is no help."""
        chance = torch.Generator().manual_seed(mixed("repeat", self.seed, step))
        chosen = (torch.rand(self.batch, generator=chance) < self.repeat).nonzero()[:, 0].tolist()
        longest = max(3, self.context_length // 2)
        for number in chosen:  # those of other processes too, so that chance stays in step
            length = int(torch.randint(max(2, longest // 8), longest, (), generator=chance))
            order = torch.arange(self.context_length + 1)
            if torch.rand((), generator=chance) < 0.5:
                order = torch.randperm(self.context_length + 1, generator=chance)
            if number in self.rows:
                row = found[number - self.rows.start]
                row.copy_(row[order[torch.arange(len(row)) % length]])

    def start(self, number: int) -> int:
        """Where the window begins that is read as the `number`-th since the start of training."""
        epoch, place = divmod(number, self.windows)
        if epoch not in self._epochs:
            chance = torch.Generator().manual_seed(mixed("epoch", self.seed, epoch))
            spare = min(len(self.tokens) - 1 - self.windows * self.context_length, self.context_length - 1)
            first = int(torch.randint(spare + 1, (), generator=chance))
            order = torch.randperm(
                self.windows, generator=chance, dtype=torch.int32 if self.windows < 1 << 31 else None
            )
            self._epochs = {e: o for e, o in self._epochs.items() if e == epoch - 1} | {epoch: (first, order)}
        first, order = self._epochs[epoch]
        return first + int(order[place]) * self.context_length


def shared_rows(batch: int, rank: int, ranks: int) -> range:
    """Which rows of a batch are those of one process, where several share them.

    >>> shared_rows(6, rank=1, ranks=3)
    range(2, 4)
    """
    if batch % ranks:
        raise ValueError(
            f"batch ({batch}) must be divisible by the {ranks} processes that share it; try {-(-batch // ranks) * ranks}"
        )
    return range(rank * batch // ranks, (rank + 1) * batch // ranks)


def mixed(*of: object) -> int:
    """A seed from several things: neighbouring numbers give seeds that have nothing in common."""
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:7], "little")


def tokenise(files: Sequence[Path | str], tokenizer: Tokenizer, out: Path | str) -> Tokens:
    """Turn text files into `out`/tokens.bin, or find it there: what has been done is not done again.

    Files end in .txt, .gz or .xz (any other is read as plain text). <|endoftext|> in a text, and the end of a file,
    become the tokenizer's end. A file or a tokenizer that has changed is noticed: `new` of the result says why the
    tokens were made anew.
    """
    out, paths = Path(out), [Path(file) for file in files]
    if not paths:
        raise ValueError("no data files; name at least one text file")
    wanted = {
        "form": FORM,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": hashlib.sha256(str(tokenizer).encode()).hexdigest(),
        "sources": [_fingerprint(path) for path in paths],
    }
    known = _notes(out)
    why = _why(known, wanted, out)
    if why:
        known = _write(paths, tokenizer, out, wanted)
    kind = torch.uint16 if known["dtype"] == "uint16" else torch.int32
    ids = torch.from_file(str(out / TOKENS), shared=False, size=known["count"], dtype=kind)
    return Tokens(ids, tokenizer.vocab_size, known["sha256"], why)


def train_tokenizer(files: Sequence[Path | str], vocab_size: int) -> Tokenizer:
    """A tokenizer for these files: the pairs most often met in them become its tokens."""
    from regard.gpt.tokenizer import Tokenizer

    texts = (part for file in files for piece in pieces(Path(file)) for part in piece.split(END) if part)
    return Tokenizer.train(texts, vocab_size)


def _write(paths: list[Path], tokenizer: Tokenizer, out: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """tokens.bin, and then tokens.json, which says that it is whole."""
    code = "H" if tokenizer.vocab_size <= 1 << 16 else "I"
    count, digest = 0, hashlib.sha256()
    out.mkdir(parents=True, exist_ok=True)
    (out / NOTES).unlink(missing_ok=True)  # from here on it would speak of another file
    with atomically(out / TOKENS) as temporary, temporary.open("wb") as file:
        for ids in _ids(paths, tokenizer):
            raw = array(code, ids).tobytes()
            file.write(raw)
            digest.update(raw)
            count += len(ids)
    known = wanted | {"dtype": "uint16" if code == "H" else "uint32", "count": count, "sha256": digest.hexdigest()}
    with atomically(out / NOTES) as temporary:
        temporary.write_text(json.dumps(known, indent=1))
    return known


def _ids(paths: Iterable[Path], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The tokens of all files, some pieces of text at a time."""
    for path in paths:
        text, ends = pieces(path), False
        while some := list(islice(text, AT_ONCE)):
            if tokenizer.end is None and any(END in piece for piece in some):
                raise ValueError(
                    f"{path} holds {END}, but this tokenizer has no such token; take it out, or use another"
                )
            parts = [piece.split(END) for piece in some]
            encoded = iter(tokenizer.encode_batch([part for one in parts for part in one]))
            found: list[int] = []
            for one in parts:
                for number in range(len(one)):
                    found += [tokenizer.end] if number and tokenizer.end is not None else []
                    found += next(encoded)
            ends = bool(found) and found[-1] == tokenizer.end
            yield found
        if tokenizer.end is not None and not ends:
            yield [tokenizer.end]


def _fingerprint(path: Path) -> dict[str, Any]:
    """What tells a file from another without reading all of it: size, time, and a hash of its first and last bytes."""
    check_file(path)
    stat = path.stat()
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(1 << 16))
        file.seek(max(0, stat.st_size - (1 << 16)))
        digest.update(file.read())
    return {"name": path.name, "size": stat.st_size, "time": stat.st_mtime_ns, "ends": digest.hexdigest()}


def _notes(out: Path) -> dict[str, Any]:
    try:
        found = json.loads((out / NOTES).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _why(known: dict[str, Any], wanted: dict[str, Any], out: Path) -> str:
    """Why the tokens must be made anew; nothing if they need not."""
    if not known or known.get("form") != FORM:
        return "read for the first time"
    if known.get("tokenizer") != wanted["tokenizer"]:
        return "the tokenizer has changed"
    before = {one["name"]: one for one in known["sources"]}
    changed = [one["name"] for one in wanted["sources"] if before.get(one["name"]) != one]
    if changed or known["sources"] != wanted["sources"]:
        names = ", ".join(changed[:3]) + ("…" if len(changed) > 3 else "")
        return f"{names} changed" if changed else "the list of files has changed"
    size = 2 if known["dtype"] == "uint16" else 4
    path = out / TOKENS
    if not path.is_file() or path.stat().st_size != known["count"] * size:
        return f"{TOKENS} is not whole"
    return ""
