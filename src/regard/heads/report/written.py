"""What a head writes: its context through the output projection, what that adds to a logit, and its two products.

All of it needs a report with values, watch(model, values=True), and is computed on demand from the model's own weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.heads.calls.wiring import HeadWiring
from regard.heads.report.record import Record

Tokens = int | Sequence[int] | Tensor
Result = TypeVar("Result")


class LowRank(NamedTuple):
    """A matrix as a product of two thin ones: left (m, D) · right (D, n). `matrix()` writes it out.

    >>> one = LowRank(torch.ones(5, 2), torch.ones(2, 3))
    >>> one.matrix().shape, one.norm().item() == one.matrix().norm().item()
    (torch.Size([5, 3]), True)
    """

    left: Tensor
    right: Tensor

    def matrix(self) -> Tensor:
        """(m, n)."""
        return self.left @ self.right

    def norm(self) -> Tensor:
        """The Frobenius norm; nothing of m × n is made."""
        return ((self.left.T @ self.left) * (self.right @ self.right.T).T).sum().clamp(min=0).sqrt()

    def transposed(self) -> LowRank:
        """(n, m)."""
        return LowRank(self.right.T, self.left.T)

    def then(self, other: LowRank) -> LowRank:
        """The product of this matrix and another, (m, n) · (n, k)."""
        return LowRank(self.left, (self.right @ other.left) @ other.right)


class WrittenView:
    """What the heads of a view write; *H in the shapes is the axis of heads, which a head does not have."""

    record: Record
    layer: int
    _heads: Sequence[int]
    _joined: Callable[[Sequence[Tensor]], Tensor]

    def written(self) -> Float[Tensor, "B *H T E"]:
        """What each head writes: its context through its part of the output projection, without the bias.

        The sum over all heads, plus the bias, is the projection's output. A norm or a scale that comes after it, before
        it is added to the residual stream, is not included.
        """
        return self._joined([self._write(head) for head in self._heads])

    @property
    def written_norm(self) -> Float[Tensor, "B *H T"]:
        """The length of what each head writes at each token."""
        return self._joined([self._length(head) for head in self._heads])

    def logits(self, tokens: Tokens) -> Tensor:
        """What each head adds, directly, to the logits of these token ids at each position: its direct effect.

        A token id gives (B, T), a list of n gives (B, T, n), and ids (B, T), one for each position, give (B, T); in a
        layer there is an axis of heads after B. The scales of norms on the way are taken as they were in this forward;
        what later layers make of it is not included.
        """
        if len(self.record.steps) > 1:
            raise ValueError(f"{self._place} has several steps of a generation; logits() needs a report of one forward")
        path = self._wired(HeadWiring.way_to_logits)
        ids = torch.as_tensor(tokens)
        each = path.logits_of_each if ids.dim() == 2 else path.logits
        wanted = ids if ids.dim() else ids[None]
        results = [each(self._write(head), wanted) for head in self._heads]
        return self._joined([one if ids.dim() else one[..., 0] for one in results])

    def _write(self, head: int) -> Tensor:
        columns = self._wired(HeadWiring.output).columns(head)
        return self._context(head).to(columns) @ columns

    def _length(self, head: int) -> Tensor:
        columns = self._wired(HeadWiring.output).columns(head)
        context, gram = self._context(head).to(columns), columns @ columns.T
        return ((context @ gram) * context).sum(-1).clamp(min=0).sqrt()

    def _context(self, head: int) -> Tensor:
        return self.record.context()[:, head]

    @property
    def _place(self) -> str:
        return self.record.name or "the model itself"

    def _wired(self, read: Callable[[HeadWiring], Result]) -> Result:
        """Read something of the wiring; where it is not known, the error names the module."""
        wiring = self.record.steps[-1].call.wiring
        if wiring is None:
            self.record.context()  # raises where no values were kept
            raise ValueError(
                "the linear maps around its heads are not known: a file has none, torch.func follows none, and neither "
                "do heads or texts that are computed one after the other have any"
            )
        try:
            return read(wiring)
        except ValueError as error:
            raise ValueError(f"{self._place}: {error}") from None


class WrittenHead(WrittenView):
    """The two products of one head."""

    head: int

    @property
    def ov(self) -> LowRank:
        """W_V · W_O of this head, (E, E): what it writes of a token that it attends to fully, biases left out."""
        values, out = self._wired(lambda one: one.input("values")), self._wired(HeadWiring.output)
        return LowRank(values.rows(self.head, len(out.starts)).T, out.columns(self.head))

    @property
    def qk(self) -> LowRank:
        """W_Q · W_Kᵀ of this head, (E, E): which tokens it matches, before the scale, biases left out.

        With rotary positions these are the products at distance 0: what the positions add is not in it.
        """
        queries, keys = (self._wired(_input(what)) for what in ("queries", "keys"))
        H = len(queries.starts)
        return LowRank(queries.rows(self.head, H).T, keys.rows(self.head, H))


def _input(what: str) -> Callable[[HeadWiring], Any]:
    return lambda wiring: wiring.input(what)
