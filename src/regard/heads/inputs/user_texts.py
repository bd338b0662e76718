"""The token ids and the padding that a user gives to watch(), bound to the modules whose text they are.

A model may read several texts: an encoder's and a decoder's, or a text and an image. One tensor goes to the layers of
its length whose own text is not known otherwise; a dict, {module name: tensor}, says where each belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.heads.calls.basis import FROM_CALL, Fact, assumed
from regard.heads.calls.call import WatchedCall

Given = Tensor | Mapping[str, Tensor] | None


class UserTexts:
    """One argument of watch(), "tokens" or "padding": a tensor for all modules, or one for each of some modules."""

    def __init__(self, given: Given, what: str) -> None:
        parts = given if isinstance(given, Mapping) else {} if given is None else {"": given}
        self.what, self.by_name = what, isinstance(given, Mapping)
        self._parts: dict[str, Tensor] = {}
        for name, part in parts.items():
            if part.dim() not in (1, 2):
                of = f"{what}[{name!r}]" if name else what
                raise ValueError(f"{of} has shape {tuple(part.shape)}; give (B, T), one row for each text")
            rows = part.detach().reshape(-1, part.shape[-1])
            self._parts[name] = rows > 0 if what == "padding" else rows
        self.unused = set(self._parts)
        self._bound: set[str] = set()  # modules whose text this was, in a call with as many keys

    def __bool__(self) -> bool:
        return bool(self._parts)

    def part(self, module: str) -> tuple[str, Tensor] | None:
        """What is given for this module: the name it is given under, and the tensor."""
        for name in sorted(self._parts, key=len, reverse=True):
            if not name or module == name or module.startswith(f"{name}."):
                return name, self._parts[name]
        return None

    def bound_to(
        self,
        call: WatchedCall,
        fact: Fact,
        arguments: Sequence[Tensor],
        of_image: bool,
        may_be_several: Callable[[int], bool] = lambda count: False,
    ) -> tuple[WatchedCall, Fact]:
        """The call with these ids, if they are those of its text.

        arguments: the integers that the model was called with. fact: how the ids that the call has by itself are known.
        may_be_several: was the model called with several texts of so many tokens?
        """
        found, own = self.part(call.origin.module), call.origin.tokens
        if found is None:
            return call, fact
        (name, ids), several = found, False
        if not self.by_name:
            if any(_same(ids, one) for one in arguments) and (own is None or not _same(own, ids)):
                self.unused.discard(name)  # they are of another text that the model reads
                return call, fact
            several = own is not None and len(arguments) > 1 and not _same(own, ids)
            several = several or (own is None and may_be_several(ids.shape[1]))
        tokens = None if of_image and not self.by_name else self._tokens(name, ids, call)
        if tokens is None:
            return call, fact
        by_length = assumed("the ids given to watch() are those of this text, as their length is")
        return call.with_origin(tokens=tokens), by_length if several else FROM_CALL

    def _tokens(self, name: str, ids: Tensor, call: WatchedCall) -> Tensor | None:
        """(B, S): the ids of the keys of this call, if it has as many, or may have as many in the end."""
        (B, _, T, S), n = call.sizes, ids.shape[1]
        grows = n > S and (T < S or call.attention.mask.parts().causal or call.origin.module in self._bound)
        return self._use(name, call, for_batch(ids[:, :S], B)) if (n == S or grows) and T <= S else None

    def real(self, call: WatchedCall, of_image: bool) -> Tensor | None:
        """(B, T) bool: which queries of this call are real, where given for (B, queries), (B, keys) or a prompt."""
        found = self.part(call.origin.module)
        if found is None:
            return None
        (B, _, T, S), (name, keep) = call.sizes, found
        n, S = keep.shape[1], S - call.origin.extra
        real = for_batch(keep, B)
        if real is None or (of_image and not self.by_name):
            return None
        if n > S or T > S:
            return self._use(name, call, real) if n == T else None
        if n < S and T == S and not call.origin.extra:  # the text of another stack
            return None
        real = F.pad(real, (0, S - n), value=True)
        return self._use(name, call, real[:, call.shift : call.shift + T])

    def _use(self, name: str, call: WatchedCall, value: Tensor | None) -> Tensor | None:
        if value is not None:
            self.unused.discard(name)
            self._bound.add(call.origin.module)
        return value

    def check_used(self, sizes: set[tuple[int, int, int]], modules: set[str]) -> None:
        """Raise ValueError where something that was given fits no call."""
        for name in sorted(self.unused):
            if name and not any(module == name or module.startswith(f"{name}.") for module in modules):
                raise ValueError(f"{self.what} names the module {name!r}, in which no attention was seen")
            of = f"{self.what}[{name!r}]" if self.by_name else self.what
            seen = ", ".join(f"{B} × {T} × {S}" for B, T, S in sorted(sizes)[:3])
            raise ValueError(
                f"{of} has shape {tuple(self._parts[name].shape)} and is of none of the attentions seen ({seen}: "
                "texts × queries × keys); give one row for each text, as long as its keys"
            )


def for_batch(t: Tensor, B: int) -> Tensor | None:
    """One row for each of B texts, if there are as many, or one."""
    return t if t.shape[0] == B else t.expand(B, -1) if t.shape[0] == 1 else None


def _same(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and torch.equal(one.flatten().to(other.device), other.flatten())
