"""One attention that its module computes in several calls, such as a loop over heads or over texts, as one call.

Each call knows which tokens its queries are and which features of the projection its heads have. Calls of the same
tokens and of other features are heads of one layer; calls of the same features and of other tokens are its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.call import QK
from regard.attention.masks import Dense, Mask, Padding
from regard.heads.calls.axis_roles import CallPart
from regard.heads.calls.call import Attention, OwnWeights, WatchedCall, changed
from regard.heads.calls.lineage import BASE

TEXTS, HEADS = 0, 1  # axes of a call


class Piece(NamedTuple):
    """A call that may be one of several, the edges that a cut removed from it, and what its heads handed over.

    The edges are the same in all calls that are joined: a cut of some heads or texts is refused.
    """

    call: WatchedCall
    removed: Mask | None
    context: Tensor | None

    @property
    def part(self) -> CallPart:
        assert self.call.origin.part is not None
        return self.call.origin.part


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same calls, where possible as one: first the heads of each text, then the texts."""
    by_tokens: dict[tuple[int, ...], list[Piece]] = {}
    for piece in pieces:
        tokens = torch.cat([piece.part.tokens.flatten(), piece.part.keys.flatten()])
        by_tokens.setdefault(tuple(tokens.tolist()), []).append(piece)
    of_texts = [_joined(list(group), HEADS) for group in by_tokens.values()]
    if any(one is None for one in of_texts):
        return list(pieces)
    whole = _joined([one for one in of_texts if one is not None], TEXTS)
    return [whole] if whole is not None else [one for one in of_texts if one is not None]


def _joined(pieces: list[Piece], axis: int) -> Piece | None:
    """Heads of the same texts, or texts of the same heads; None where they are not."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [piece.part for piece in pieces]
    if not _belong_together(parts, axis):
        return None
    order = sorted(
        range(len(pieces)), key=lambda i: int((parts[i].features if axis == HEADS else parts[i].tokens[:, 0])[0])
    )
    pieces, parts = [pieces[i] for i in order], [parts[i] for i in order]
    attention = _joined_attention([piece.call.attention for piece in pieces], axis)
    if attention is None or not _in_order(parts, axis):
        return None
    tokens, keys, features = (torch.cat(labels) for labels in zip(*parts, strict=True))
    whole = CallPart(*parts[0][:2], features) if axis == HEADS else CallPart(tokens, keys, parts[0].features)
    call = changed(pieces[0].call, attention=attention, lse=_cat([piece.call.lse for piece in pieces], axis))
    call = changed(call.with_origin(part=whole, fingerprint=None), wiring=None)
    return Piece(call, pieces[0].removed, _cat([piece.context for piece in pieces], axis))


def _in_order(parts: Sequence[CallPart], axis: int) -> bool:
    """Are heads one after the other, and not in turns, such as even and odd ones?"""
    return axis != HEADS or bool((torch.cat([part.features for part in parts]).diff() > 0).all())


def _belong_together(parts: Sequence[CallPart], axis: int) -> bool:
    """Are these different heads of the same tokens, or the same heads of different texts?"""
    if axis == HEADS:
        different = [torch.cat([part.features for part in parts])]
        same: list[tuple[Tensor, ...]] = [part[:2] for part in parts]
    else:
        different = [torch.cat([part.tokens[:, 0] for part in parts]), torch.cat([part.keys[:, 0] for part in parts])]
        same = [part[2:] for part in parts]
    if axis == HEADS and any(len(part.features) > 1 and len(part.tokens) > 1 for part in parts):
        projections = torch.cat([part.features for part in parts]) // BASE
        if len(projections.unique()) > 1:  # these may be several attentions
            return False
    are_different = all(len(labels.unique()) == len(labels) for labels in different)
    return are_different and all(all(map(torch.equal, labels, same[0])) for labels in same)


def _cat(tensors: Sequence[Tensor | None], axis: int) -> Tensor | None:
    known = [t for t in tensors if t is not None]
    return torch.cat(known, axis) if len(known) == len(tensors) else None


def _joined_attention(calls: Sequence[Attention], axis: int) -> Attention | None:
    """None where the calls are not of one kind."""
    if len({call.sizes[:axis] + call.sizes[axis + 1 :] for call in calls}) > 1:
        return None
    weights = [call for call in calls if isinstance(call, OwnWeights)]
    if len(weights) == len(calls):
        return OwnWeights(torch.cat([one.weights for one in weights], axis), _joined_mask(calls, axis))
    plain = [call for call in calls if isinstance(call, QK)]
    return _joined_queries(plain, axis) if len(plain) == len(calls) else None


def _joined_queries(calls: Sequence[QK], axis: int) -> QK | None:
    kinds = {(call.scale, call.bias is None, call.alibi is None) for call in calls}
    if len(kinds) > 1 or calls[0].alibi is not None:
        return None
    k = [call.k.expand(-1, call.q.shape[1], -1, -1) if call.k.shape[1] == 1 else call.k for call in calls]
    bias = _cat([None if call.bias is None else call.bias.expand(*call.sizes) for call in calls], axis)
    q, mask = torch.cat([call.q for call in calls], axis), _joined_mask(calls, axis)
    return QK(q=q, k=torch.cat(k, axis), mask=mask, scale=calls[0].scale, bias=bias)


def _joined_mask(calls: Sequence[Attention], axis: int) -> Mask:
    masks = [call.mask for call in calls]
    if all(mask is masks[0] for mask in masks):
        return masks[0]
    _, _, T, S = calls[0].sizes
    dense = [call.mask.dense(T, S, call.device) for call in calls]
    if axis == HEADS and all(torch.equal(one, dense[0]) for one in dense):
        return masks[0]
    if axis == TEXTS and all(one.dim() == 4 and one.shape[1:3] == (1, 1) for one in dense):
        rows = [one[:, 0, 0].expand(call.sizes[0], S) for one, call in zip(dense, calls, strict=True)]
        return Padding(torch.cat(rows))
    return Dense(torch.cat([one.expand(*call.sizes) for one, call in zip(dense, calls, strict=True)], axis))
