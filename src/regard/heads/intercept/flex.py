"""FlexAttention: its mask_mod as a Mask; with a score_mod, its weights, where they fit in memory.

Nothing is compiled while a model is watched, so FlexAttention runs its own eager code, which holds T × S scores.
Attention sinks are applied after the kernel: a model multiplies its output by exp(lse − log(exp(lse) + exp(sink))),
so the weights are smaller by this factor. It is found by following the LSE of the kernel up to that product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import EVERYTHING, Mask
from regard.attention.numerics import softmax_over_visible
from regard.heads.calls.basis import Fact, How
from regard.heads.calls.call import Args, Kwargs, Origin, OwnWeights, WatchedCall
from regard.heads.calls.lineage import PERMUTE, SLICE
from regard.heads.calls.score_origin import tensors_among
from regard.heads.calls.visibility import mask_written_out
from regard.heads.inputs.row_origin import Asked
from regard.heads.intercept.paths import handles
from regard.heads.intercept.softmax import RESHAPE_OR_CAST
from regard.heads.measure.kernels.exact_weights import LOG2E, all_scores
from regard.support.hidden_scores import may_see

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

VIEWS = {*PERMUTE, *RESHAPE_OR_CAST, *SLICE}
MULTIPLY = ("mul", "multiply", "__mul__", "__rmul__")
LIMIT = 1 << 26  # the most weights, B · H · T · S, that are computed for a score_mod: 256 MiB


@dataclass(frozen=True, repr=False, eq=False)
class MaskMod(Mask):
    """A mask_mod of FlexAttention: may query q_idx of head h in text b attend to kv_idx?"""

    allows: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    texts: int
    heads: int
    device: torch.device  # of the tensors that the function indexes

    def tile(self, rows: Int[Tensor, "T"], cols: Int[Tensor, "S"], shift: int) -> Bool[Tensor, "..."]:
        b, h = torch.arange(self.texts, device=self.device), torch.arange(self.heads, device=self.device)
        allowed: Tensor = over_all_indices(self.allows)(b, h, rows.to(self.device), cols.to(self.device))
        return allowed.to(rows.device)

    @property
    def kind(self) -> str:
        return getattr(self.allows, "__name__", "mask_mod")


def over_all_indices(function: Callable[..., Tensor], takes_score: bool = False) -> Callable[..., Tensor]:
    """Vectorise a function of one b, h, q_idx and kv_idx (after a score, for a score_mod) over all of them."""
    for position in (3, 2, 1, 0):
        axes = tuple(0 if i == position else None for i in range(4))
        function = torch.vmap(function, in_dims=((0, *axes) if takes_score else axes))
    return function


def flex_call(args: Args, kwargs: Kwargs) -> WatchedCall:
    """The arguments of the flex_attention operator as a call."""
    q, k, score_mod, block_mask, scale = _read_arguments(*args, **kwargs)
    q, k = q.detach(), k.detach().expand(q.shape[0], -1, -1, -1)
    mask = _mask_of(block_mask, q)
    if getattr(score_mod, "__name__", "") == "_identity":
        return WatchedCall(QK(q=q, k=k, scale=scale, mask=mask))
    scores = _modified_scores(QK(q=q, k=k, scale=scale), score_mod)
    scores = scores.masked_fill(~mask.dense(q.shape[2], k.shape[2], q.device), -torch.inf)
    return WatchedCall(OwnWeights(_softmax(scores), mask_written_out(may_see(scores))))


def without_flex_edges(args: Args, kwargs: Kwargs, removed: Mask) -> tuple[Args, Kwargs]:
    """The arguments of the operator with the scores of removed edges at −∞."""
    q, k, score_mod, _, _ = _read_arguments(*args, **kwargs)
    allowed = removed.dense(q.shape[2], k.shape[2], q.device).expand(q.shape[0], q.shape[1], -1, -1)

    def score_mod_without_edges(score: Tensor, b: Tensor, h: Tensor, row: Tensor, col: Tensor, *more: Any) -> Tensor:
        return torch.where(allowed[b, h, row, col], score_mod(score, b, h, row, col, *more), -torch.inf)

    if len(args) > 3:
        return (*args[:3], score_mod_without_edges, *args[4:]), kwargs
    return args, kwargs | {"score_mod": score_mod_without_edges}


def _mask_of(block_mask: Any, q: Tensor) -> Mask:
    """The mask_mod, last in a block mask."""
    mask_mod = block_mask[-1] if block_mask else None
    if not callable(mask_mod) or getattr(mask_mod, "__name__", "") == "noop_mask":
        return EVERYTHING
    counts = next((t for t in block_mask if isinstance(t, Tensor)), None)  # (B or 1, H or 1, …)
    texts, heads = q.shape[:2] if counts is None or counts.dim() < 2 else counts.shape[:2]
    return MaskMod(mask_mod, texts, heads, q.device)


def _modified_scores(attention: QK, score_mod: Callable[..., Tensor]) -> Tensor:
    """(B, H, T, S)."""
    B, H, T, S = attention.sizes
    if B * H * T * S > LIMIT:
        raise ValueError(
            f"a FlexAttention with a score_mod and {B} × {H} × {T} × {S} weights; they are written out to be seen, "
            f"up to {LIMIT} of them: watch a shorter text"
        )
    indices = (torch.arange(n, device=attention.device) for n in (B, H, T, S))
    return over_all_indices(score_mod, takes_score=True)(all_scores(attention, -torch.inf) / LOG2E, *indices)


def _softmax(scores: Tensor) -> Tensor:
    """The weights of scores, hidden ones at −∞; 0 where a row sees nothing."""
    return softmax_over_visible(scores, scores != -torch.inf)


def _read_arguments(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: float, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Any, Any, float]:
    return query, key, score_mod, block_mask, float(scale)


class FlexSinks:
    """A call of FlexAttention, and what the model does with its output and its LSE.

    depth: how many modules were running. asked: where its queries and keys come from.
    unknown: why its weights cannot be derived any more.
    """

    def __init__(self, call: WatchedCall, out: Tensor, lse: Any, depth: int, asked: Asked | None = None) -> None:
        self.call, self.depth, self.unknown, self.asked = call, depth, "", asked
        self._out, self._views = out, [out]  # views: the output, and copies of it in another layout
        self._shares = [lse] if isinstance(lse, Tensor) else []  # the LSE, and all that was computed from it

    def follow(self, name: str, args: Args, kwargs: Kwargs, result: Any) -> None:
        tensors = list(tensors_among((*args, *kwargs.values()), longest=1000))
        shares = [t for t in tensors if any(t is share for share in self._shares)]
        views = any(t is view for t in tensors for view in self._views)
        if not isinstance(result, Tensor) or not (shares or views):
            return
        is_out = any(t is self._out for t in tensors)
        if not views:
            self._shares.append(result)
        elif not shares:
            self._views += [result] if name in VIEWS else []
        elif is_out and name in MULTIPLY and shares[0].shape == (*self._out.shape[:3], 1):
            self._scale_weights(shares[0].detach())
            self._out, self._views = result, [result]
        else:
            self.unknown = f"its output is combined with its log-sum-exp by {name}"

    def _scale_weights(self, factor: Tensor) -> None:
        B, H, T, S = self.call.sizes
        if B * H * T * S > LIMIT:
            self.unknown = f"its attention sinks need all {B} × {H} × {T} × {S} weights; watch a shorter text"
            return
        attention = self.call.attention
        if isinstance(attention, OwnWeights):
            weights = attention.weights.float()
        else:
            with torch.no_grad():
                weights = _softmax(all_scores(attention, -torch.inf) / LOG2E).float()
        weights = weights * factor.float()
        sums = weights.sum(-1)
        low, high = float(sums.min()), float(sums.max())
        fact = Fact(How.CALL, f"rows sum to {low:.2f} – {high:.2f}; the rest is on a key that has no value")
        basis = replace(self.call.origin.basis, weights=fact)
        self.call = WatchedCall(OwnWeights(weights, self.call.attention.mask), Origin(basis=basis))


@handles("flex_attention")
def report_flex(interceptor: Interceptor, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The operator that FlexAttention calls."""
    if interceptor.is_vmapped():
        return function(*args, **kwargs)
    edits, asked = interceptor.edits(), None if interceptor.origins is None else interceptor.origins.asked
    with interceptor.errors_naming_the_module(), torch.no_grad():
        call = flex_call(args, kwargs)
    edit = interceptor.edit_of(call, edits)
    if edit is not None and edit.removed is not None:
        with interceptor.errors_naming_the_module("cut"):
            args, kwargs = without_flex_edges(args, kwargs, edit.removed)
        with torch.no_grad():
            call = flex_call(args, kwargs)
    outputs = function(*args, **kwargs)
    interceptor.report_pending()
    if edit is None and not interceptor.needs_contexts:
        depth = len(interceptor.running[0].calls)
        interceptor.pending = FlexSinks(call.detached(), outputs[0], outputs[1], depth, asked)
        return outputs
    return (interceptor.finish(call, edit, outputs[0]), *outputs[1:])
