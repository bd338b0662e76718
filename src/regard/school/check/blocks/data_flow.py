"""Data flow: what the output of a block is the sum of, read from the torch calls that ran.

A stream of a block is a sum of terms: x, the norm of a stream, or what a part (an attention, a feed-forward) makes of
the streams that it reads. Parts may be modules, methods or lines of forward. Where anything else is added, the wiring
is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from regard.mistakes.search import same
from regard.school.check.learner_code.protocol import Recorded

_ADDS = {"add", "add_", "iadd", "radd"}
_NORMS = {"layer_norm", "rms_norm"}
_MOVES = {"view", "reshape", "transpose", "permute", "contiguous", "to", "float", "double", "type_as", "clone", "mT"}
_EMPTY = {"new_ones", "new_zeros", "new_full", "zeros_like", "ones_like", "full_like", "empty_like", "new_empty"}
# What a part is, by the calls in it: the first that fits. A norm may be written by hand.
_KINDS = {
    "attention": {"softmax", "scaled_dot_product_attention", "exp"},
    "feed-forward": {"linear", "matmul", "rmatmul", "mm", "bmm", "addmm", "einsum"},
    "norm": {"mean", "var", "std", "var_mean", "rsqrt", "norm", "normalize"},
}
PARTS = ("attention", "feed-forward")


@dataclass(frozen=True, order=True)
class Summand:
    """One of the terms of a stream; kind: "x", "norm", one of PARTS, "" where it is something else."""

    kind: str
    weights: tuple[int, ...] = ()  # the numbers of the parameters that make it
    reads: tuple[tuple[Summand, ...], ...] = ()
    line: int = field(default=0, compare=False)  # at which it is added to others, or made

    @cached_property
    def depth(self) -> int:
        """How many terms are made one after the other to make it."""
        return 1 + max((term.depth for stream in self.reads for term in stream), default=0)


Stream = tuple[Summand, ...]  # sorted
X: Stream = (Summand("x"),)


class Flow:
    """The torch calls of one run, as streams."""

    def __init__(self, calls: Sequence[Recorded], x: Tensor) -> None:
        self.calls, self.x, self.shape = calls, x, sorted(x.shape)
        self._streams: dict[int, Stream] = {}

    def of(self, out: Tensor) -> Stream:
        """The stream that a tensor is; () where no call made it."""
        numbers = [n for n in range(len(self.calls)) if self._is_full(n)]
        made = next((n for n in reversed(numbers) if same(self.calls[n].value, out)), None)
        return () if made is None else self._stream(made)

    def _stream(self, n: int) -> Stream:
        if n not in self._streams:
            self._streams[n] = tuple(sorted(self._terms(n)))
        return self._streams[n]

    def _terms(self, n: int) -> Stream:
        call = self.calls[n]
        if call.name == "argument":
            return X if same(call.value, self.x) else (Summand("", line=n),)
        if self._is_sum(n):
            streams = [self._stream(i) for i in call.inputs]
            return tuple(replace(t, line=call.line) if len(one) == 1 else t for one in streams for t in one)
        if call.name in _MOVES and call.inputs and self.calls[call.inputs[0]].value.numel() == call.value.numel():
            return self._stream(call.inputs[0])
        return (self._part(n),)

    def _part(self, n: int) -> Summand:
        """A norm, or a part: everything that was computed since the streams that it reads."""
        inputs = self.calls[n].inputs
        if self.calls[n].name in _NORMS and inputs:
            return Summand("norm", tuple(sorted(inputs[1:])), (self._stream(inputs[0]),), self.calls[n].line)
        names, weights, reads, todo, seen = set[str](), set[int](), set[Stream](), [n], set[int]()
        while todo:
            if (i := todo.pop()) in seen:
                continue
            seen.add(i)
            call = self.calls[i]
            if call.name == "parameter":
                weights.add(i)
            elif i != n and self._is_stream(i):
                reads.add(self._stream(i))
            elif call.name not in ("argument", *_EMPTY):
                names.add(call.name)
                todo += call.inputs
        kind = next((kind for kind, calls in _KINDS.items() if names & calls), "")
        return Summand(kind, tuple(sorted(weights)), tuple(sorted(reads)), self.calls[n].line)

    def _is_full(self, n: int) -> bool:
        value = self.calls[n].value
        return value.is_floating_point() and sorted(value.shape) == self.shape

    def _is_sum(self, n: int) -> bool:
        call = self.calls[n]
        if call.name not in _ADDS or len(call.inputs) != 2 or not all(map(self._is_full, (n, *call.inputs))):
            return False
        a, b = (self.calls[i].value for i in call.inputs)
        return a.shape == b.shape and same(a + b, call.value)

    def _is_stream(self, n: int) -> bool:
        """Is it x, a sum or the norm of a stream? The norm of a projection, as of queries, is inside of a part."""
        name = self.calls[n].name
        if not self._is_full(n) or name not in _NORMS:
            return self._is_full(n) and (name == "argument" or self._is_sum(n))
        return [term.kind for term in self._stream(n)[0].reads[0]] != ["feed-forward"]


@dataclass(frozen=True)
class JoinedPart:
    """One part of a block: how it is joined, and what is wrong with that."""

    kind: str
    style: str  # pre, post, branch, or several of them
    line: int
    wrong: str = ""


def read_steps(stream: Stream) -> list[JoinedPart]:
    """The parts of a block from the last to the first; none where they are joined in no way that is known here."""
    steps: list[JoinedPart] = []
    while stream != X:
        norm = stream[0] if _is_norm(stream) else None
        stream = stream if norm is None else norm.reads[0]
        if stream == X and steps:  # the residual is of a norm of x, which a part may read again
            wrong = steps[-1].wrong or "residual of the normed input" * (not steps[-1].style)
            return [*steps[:-1], replace(steps[-1], wrong=wrong)]
        branches = {term: part for term in stream if (part := _branch(term)) is not None}
        if not branches or _is_norm(stream):  # a norm of a norm
            return []
        term = max(branches, key=lambda one: one.depth)
        joined = next(_joined(stream, term, branches), None)
        if joined is None:
            return []
        added = [t.line for t in stream if t.kind == "x" or t is term]
        line = norm.line if norm is not None and len(stream) == 1 else max(added)
        stream, taken, norms, wrong = joined
        for one in taken:
            style = "pre " * min(norms, 1) + "branch " * (one.kind == "norm") + "post" * (norm is not None)
            steps.append(JoinedPart(branches[one].kind, style.strip(), line, wrong))
    return steps


def _joined(
    stream: Stream, term: Summand, branches: dict[Summand, Summand]
) -> Iterator[tuple[Stream, list[Summand], int, str]]:
    """How the last part of a stream is joined: the stream before it, the parts, norms before them, what is wrong."""
    rest, part = _without(stream, term), branches[term]
    others = [one for one in rest if one in branches]
    for read in sorted(part.reads, key=lambda one: max(t.depth for t in one), reverse=True):  # not the memory first
        levels = _levels(read)
        for norms, base in enumerate(levels):
            if rest == base:
                yield base, [term], norms, "norm applied twice" * (norms > 1)
            elif [*rest] == sorted((*base, *others)) and all(base in _levels(*branches[one].reads) for one in others):
                yield base, [term, *others], norms, ""
            elif [*rest] == sorted(base * 2):
                yield base, [term], norms, "residual added twice"
        if not rest:
            yield levels[:2][-1], [term], len(levels) - 1, "no residual"
        is_later = any(_branch(one) for one in levels[-1]) and X[0] in levels[-1]
        if rest == X and is_later and part.kind == "feed-forward":
            yield levels[0], [term], 0, "residual of the block's input"


def _levels(*reads: Stream) -> list[Stream]:
    """Streams that a part reads, and what they are the norms of."""
    levels = list(reads)
    for stream in levels:
        levels += [stream[0].reads[0]] if _is_norm(stream) else []
    return levels


def _branch(term: Summand) -> Summand | None:
    """The part that a term is, or is the norm of."""
    inner = term.reads[0] if term.kind == "norm" and term.reads else ()
    one = inner[0] if len(inner) == 1 else term
    return one if one.kind in PARTS else None


def _is_norm(stream: Stream) -> bool:
    return len(stream) == 1 and stream[0].kind == "norm" and len(stream[0].reads) == 1


def _without(stream: Stream, term: Summand) -> Stream:
    i = stream.index(term)
    return stream[:i] + stream[i + 1 :]
