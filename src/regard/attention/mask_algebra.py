"""A mask: a rule that says who may attend to whom, and how rules and tensors combine. True = may attend, everywhere.

A rule costs nothing until a tile of it is needed, so it works at any length, and attend() can recognise what a fused
kernel does by itself. masks.py has the rules about positions: causal, window, documents. A new kind is a dataclass with
tile() and a function that makes it, there, and its name in public.py. @makes lets files have the rule and not a tensor.
Query i is at key position i + (S − T): the last query is at the last key, as with a key/value cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.support.arguments import describe_tensor, is_integer, list_few, tensor_remedy


@dataclass(frozen=True)
class Parts:
    """A mask taken apart into what fused kernels know, and the rest."""

    causal: bool = False
    window: int | None = None
    keys: Tensor | None = None  # (B, S) bool, or (B,) lengths
    rest: Mask | None = None


class Mask(ABC):
    """A rule that says, for query row and key column, whether the query may attend. Combine with & | ~.

    >>> import regard
    >>> regard.causal() & regard.window(2)
    causal & window(2)    ■ may attend   · hidden   (rows: queries, columns: keys)
      ■ · · · · ·
      ■ ■ · · · ·
      · ■ ■ · · ·
      · · ■ ■ · ·
      · · · ■ ■ ·
      · · · · ■ ■
    """

    file_kind: ClassVar[str | None] = None  # its name in files; None: there it is written out as a tensor

    @abstractmethod
    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        """The rule for these query rows and key columns, in a shape that broadcasts to (B, H, T, S).

        `shift` is S − T of the call: query row i is at key position i + shift.
        """

    def span(self, first: int, last: int, size: int) -> tuple[int, int]:
        """The keys [low, high) outside which nobody at key positions first … last may attend."""
        return 0, size

    def parts(self) -> Parts:
        """Split the mask into parts that attend() knows."""
        return Parts(rest=self)

    def check(self, B: int, H: int, T: int, S: int) -> None:
        """Raise ValueError where the mask does not fit weights of (B, H, T, S); most rules fit anything."""
        for mask in self._inside():
            mask.check(B, H, T, S)

    def check_lengths(self, S: int) -> None:
        """Raise ValueError where a length is more than S keys; not for a cache, where more keys are still to come."""
        for mask in self._inside():
            mask.check_lengths(S)

    def dense(
        self, T: int, S: int | None = None, device: torch.device | str | None = None
    ) -> Bool[Tensor, "#B #H #T #S"]:
        """The mask as a tensor that broadcasts to (B, H, T, S).

        >>> import regard
        >>> regard.causal().dense(3)[0, 0]
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True,  True]])
        """
        S = T if S is None else S
        return to_four_axes(self.tile(torch.arange(T, device=device), torch.arange(S, device=device), S - T))

    def in_order(self, order: Int[Tensor, "B"], T: int, S: int) -> Mask:
        """The mask of a batch whose text i is what text order[i] was, as beam search reorders texts.

        A rule with tensors is written out; kinds that can do better say so themselves.
        """
        if any(isinstance(value, Tensor) for value in vars(self).values()):
            seen = self.dense(T, S, order.device)
            return self if len(seen) == 1 else Dense(seen[order])
        inside = {name: mask.in_order(order, T, S) for name, mask in vars(self).items() if isinstance(mask, Mask)}
        return replace(self, **inside) if inside else self  # type: ignore[type-var]

    def __and__(self, other: Mask) -> Mask:
        return And(self, _other_mask(other))

    def __or__(self, other: Mask) -> Mask:
        return Or(self, _other_mask(other))

    __rand__, __ror__ = __and__, __or__  # a tensor may stand on the left

    def __invert__(self) -> Mask:
        return Not(self)

    @property
    def kind(self) -> str:
        """The rule in words, without numbers: those may be on a GPU, and reading them would wait for it."""
        return type(self).__name__.lower()

    @property
    def name(self) -> str:
        """The expression that makes the mask."""
        return self.kind

    def _inside(self) -> Iterable[Mask]:
        """The masks that it combines."""
        return ()

    def _sizes(self) -> tuple[int, int] | None:
        """The (T, S) that the mask's own data implies, if any."""
        sizes = [size for mask in self._inside() if (size := mask._sizes())]
        return (min(T for T, _ in sizes), min(S for _, S in sizes)) if sizes else None

    def __repr__(self) -> str:
        T, S = self._sizes() or (6, 6)
        rows, cols = min(T, 12), min(S, 24)
        allowed = to_four_axes(self.tile(torch.arange(rows), torch.arange(cols), S - T)).expand(-1, -1, rows, cols)
        lines = [f"{self.name}    ■ may attend   · hidden   (rows: queries, columns: keys)"]
        for row in allowed[:1, :1].any(dim=(0, 1)):  # of the first text and head; nothing where there is none
            lines.append("  " + " ".join("■" if seen else "·" for seen in row) + (" …" if cols < S else ""))
        lines += ["  …"] * (rows < T)
        lines += [f"  (batch element 0 of {len(allowed)})"] * (len(allowed) > 1)
        return "\n".join(lines)


@dataclass(frozen=True, repr=False, eq=False)
class Everything(Mask):
    """Nothing is hidden."""

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return torch.ones(1, 1, dtype=torch.bool, device=rows.device)

    def parts(self) -> Parts:
        return _NO_PARTS


@dataclass(frozen=True, repr=False, eq=False)
class Padding(Mask):
    """Padded keys are hidden: `keep` is (B, S) bool, or (B,) how many keys from the left are real."""

    keep: Tensor

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        keep = self.keep.to(rows.device)
        seen = keep[:, cols] if keep.dim() == 2 else cols < keep[:, None]
        return seen[:, None, None, :]

    def parts(self) -> Parts:
        return Parts(keys=self.keep)

    def in_order(self, order: Int[Tensor, "B"], T: int, S: int) -> Mask:
        return Padding(take_texts(self.keep, order))

    def check(self, B: int, H: int, T: int, S: int) -> None:
        batch, *keys = self.keep.shape
        if batch not in (1, B):
            raise ValueError(f"padding is for a batch of {batch} but x has B={B}; give one row or length for each")
        if keys and keys[0] != S:
            remedy = "with a cache, cover the cached keys too; or pass lengths"
            raise ValueError(f"padding covers {keys[0]} keys but there are S={S}; {remedy}")
        if self._may_read_lengths() and bool((self.keep < 0).any()):
            raise ValueError(f"lengths ({list_few(self.keep)}) count keys, so none may be below 0; 0 hides all of them")

    def check_lengths(self, S: int) -> None:
        if self._may_read_lengths() and bool((self.keep > S).any()):
            raise ValueError(f"lengths ({list_few(self.keep)}) count keys, but there are S={S}; give at most {S}")

    def _may_read_lengths(self) -> bool:
        """Has it lengths whose values can be read at no cost? On a GPU, that would wait for all queued kernels."""
        return self.keep.dim() == 1 and self.keep.device.type == "cpu" and not torch.compiler.is_compiling()

    def _sizes(self) -> tuple[int, int]:
        if self.keep.dim() == 2:
            return self.keep.shape[1], self.keep.shape[1]
        longest = int(self.keep.max()) if self.keep.numel() else 0
        size = max(6, longest + 1) if len(self.keep) == 1 else longest  # one length does not say how many keys
        return size, size

    @property
    def name(self) -> str:
        return "padding" if self.keep.dim() == 2 else f"padding({list_few(self.keep)})"


@dataclass(frozen=True, repr=False, eq=False)
class Dense(Mask):
    """A mask written out: bool (T, S), (B, T, S) or (B, H, T, S)."""

    seen: Tensor

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        seen = self.seen.to(rows.device)
        seen = seen if seen.shape[-2] == 1 else seen[..., rows, :]
        seen = seen if seen.shape[-1] == 1 else seen[..., cols]
        return seen[:, None] if seen.dim() == 3 else seen

    def in_order(self, order: Int[Tensor, "B"], T: int, S: int) -> Mask:
        return self if self.seen.dim() == 2 else Dense(take_texts(self.seen, order))

    def check(self, B: int, H: int, T: int, S: int) -> None:
        shape = tuple(self.seen.shape)
        sizes = {2: (T, S), 3: (B, T, S), 4: (B, H, T, S)}[len(shape)]
        if all(have == 1 or have == want for have, want in zip(shape, sizes, strict=True)):
            return
        names = {2: f"T={T}, S={S}", 3: f"B={B}, T={T}, S={S}", 4: f"B={B}, H={H}, T={T}, S={S}"}[len(shape)]
        hint = "give True where a query (row) may attend to a key (column)"
        if shape[-2:] == (S, T):
            hint = "did you mean mask.mT?"
        elif shape == (B, S):
            hint = "did you mean regard.padding(mask)?"
        raise ValueError(f"mask has shape {shape} but weights here are ({names}); {hint} (True = may attend)")

    def _sizes(self) -> tuple[int, int]:
        T, S = self.seen.shape[-2:]
        return (S if T == 1 else T), (T if S == 1 else S)  # an axis of 1 is repeated

    @property
    def name(self) -> str:
        return f"dense{tuple(self.seen.shape)}"


@dataclass(frozen=True, repr=False, eq=False)
class _Pair(Mask):
    left: Mask
    right: Mask
    _sign: ClassVar[str]

    def _inside(self) -> Iterable[Mask]:
        return self.left, self.right

    @property
    def kind(self) -> str:
        return f" {self._sign} ".join(f"({m.kind})" if isinstance(m, Or) else m.kind for m in self._inside())

    @property
    def name(self) -> str:
        return f" {self._sign} ".join(f"({m.name})" if isinstance(m, Or) else m.name for m in self._inside())


class And(_Pair):
    """Both rules allow it."""

    _sign = "&"

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return self.left.tile(rows, cols, shift) & self.right.tile(rows, cols, shift)

    def span(self, first: int, last: int, size: int) -> tuple[int, int]:
        (a, b), (c, d) = self.left.span(first, last, size), self.right.span(first, last, size)
        return max(a, c), min(b, d)

    def parts(self) -> Parts:
        a, b = self.left.parts(), self.right.parts()
        second_keys = None if a.keys is None or b.keys is None else Padding(b.keys)  # kernels know one row of keys
        rest = [mask for mask in (a.rest, second_keys, b.rest) if mask is not None]
        windows = [size for size in (a.window, b.window) if size is not None]
        keys = b.keys if a.keys is None else a.keys
        return Parts(a.causal or b.causal, min(windows) if windows else None, keys, reduce(And, rest) if rest else None)


class Or(_Pair):
    """Either rule allows it."""

    _sign = "|"

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return self.left.tile(rows, cols, shift) | self.right.tile(rows, cols, shift)

    def span(self, first: int, last: int, size: int) -> tuple[int, int]:
        (a, b), (c, d) = self.left.span(first, last, size), self.right.span(first, last, size)
        return min(a, c), max(b, d)


@dataclass(frozen=True, repr=False, eq=False)
class Not(Mask):
    """What the rule hides, and nothing else."""

    rule: Mask

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        return ~self.rule.tile(rows, cols, shift)

    def _inside(self) -> Iterable[Mask]:
        return (self.rule,)

    @property
    def kind(self) -> str:
        return f"~({self.rule.kind})"

    @property
    def name(self) -> str:
        return f"~({self.rule.name})" if isinstance(self.rule, _Pair) else f"~{self.rule.name}"


EVERYTHING = Everything()
_NO_PARTS = Parts()
MAKERS: dict[str, Callable[..., Mask]] = {}  # by the kind's name in files
Maker = TypeVar("Maker", bound=Callable[..., Mask])


def makes(kind: type[Mask]) -> Callable[[Maker], Maker]:
    """Files have masks of this kind as a rule: its name and its values, from which the function makes it again.

    The function is called with the masks inside it, in order, then with its other values by name: whole numbers from 0
    and tensors, which nobody vouches for. It checks them, and raises ValueError.
    """

    def register(make: Maker) -> Maker:
        kind.file_kind = kind.__name__.lower()
        MAKERS[kind.file_kind] = make
        return make

    return register


makes(Everything)(lambda: EVERYTHING)
for _kind in (And, Or, Not):
    makes(_kind)(_kind)


@makes(Padding)
def padding(keep: Tensor | Sequence[int]) -> Mask:
    """Hide padded keys: lengths (B,), or a bool tensor (B, S) that is True for real keys.

    >>> padding([2, 3]).dense(3)[:, 0, 0]
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    if not isinstance(keep, Tensor):
        keep = torch.tensor(list(keep), dtype=None if len(keep) else torch.long)
    if not (keep.dim() == 2 if keep.dtype is torch.bool else keep.dim() == 1 and is_integer(keep)):
        rule = "padding takes whole lengths (B,) or a bool tensor (B, S), True = real"
        remedy = "try attention_mask.bool() or attention_mask.sum(-1)"
        raise ValueError(f"{rule}; this is {describe_tensor(keep)}; {remedy}")
    return Padding(keep)


def dense(seen: Tensor) -> Mask:
    """A mask written out as bool (T, S), (B, T, S) or (B, H, T, S)."""
    if seen.dtype is not torch.bool or seen.dim() not in (2, 3, 4):
        rule = "a mask must be bool of shape (T, S), (B, T, S) or (B, H, T, S), True = may attend"
        remedy = "try mask != 0 for a 0/1 mask, mask == 0 for a 0/−inf one"
        raise ValueError(f"{rule}; this is {describe_tensor(seen)}; {remedy}")
    return Dense(seen)


def as_mask(mask: Mask | Tensor | Sequence[int] | None) -> Mask:
    """Take a mask in any accepted form: a Mask, a bool tensor, key lengths, or None."""
    if mask is None:
        return EVERYTHING
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return padding(mask) if mask.dim() == 1 and is_integer(mask) else dense(mask)
    if isinstance(mask, (list, tuple)) and all(isinstance(n, int) for n in mask):
        return padding(mask)
    rule = f"mask must be a regard mask, a bool tensor or key lengths, not {type(mask).__name__}"
    raise ValueError(f"{rule}; {tensor_remedy('mask', mask)}, True = may attend")


def take_texts(t: Tensor, order: Int[Tensor, "B"]) -> Tensor:
    """A tensor (B, …) with its texts in this order; one that is the same for all texts stays."""
    return t if t.shape[0] == 1 else t[order.to(t.device)]


def to_four_axes(t: Tensor) -> Tensor:
    """Add leading axes of size 1 until there are four."""
    return t.reshape((1,) * (4 - t.dim()) + tuple(t.shape))


def _other_mask(other: object) -> Mask:
    if isinstance(other, Mask):
        return other
    if isinstance(other, (Tensor, list, tuple)):
        return as_mask(other)
    raise TypeError(f"masks combine with masks, tensors and lengths, not with {type(other).__name__}")
