"""A layer of regard that is called like the torch.nn.MultiheadAttention that it replaces."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.support.arguments import describe_tensor


class DropIn(nn.Module):
    """The layer with the call, the masks and the result of torch.nn.MultiheadAttention; `layer` is the layer itself.

    >>> theirs = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x, hidden = torch.randn(3, 5, 8), torch.ones(5, 5, dtype=torch.bool).triu(1)
    >>> ours = DropIn(MultiHeadAttention(8, 8, None, 0.0, 2, causal=False), batch_first=True)
    >>> out, weights = ours(x, x, x, attn_mask=hidden)
    >>> out.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))

    Two things differ: a query that may see nothing gives 0, where torch gives NaN; and the weights are those before
    dropout. A mask of other numbers than 0 and −∞, and keys that are not the values, are refused.
    """

    # What nn.TransformerEncoderLayer reads of its attention: together they say that this is not torch's own.
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(self, layer: MultiHeadAttention, batch_first: bool) -> None:
        super().__init__()
        self.layer, self.batch_first = layer, batch_first
        self.embed_dim, self.num_heads = layer.d_in, layer.num_heads

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and, unless need_weights=False, the weights: their mean over the heads, or of each head.

        Masks are torch's: True hides. is_causal=True alone hides the future; beside an attn_mask it is a hint.
        """
        if not _is_same(key, value):
            raise ValueError("key and value must be one tensor here: att(x, x, x), or att(x, source, source)")
        is_self = _is_same(query, key)
        single, swapped = query.dim() == 2, query.dim() == 3 and not self.batch_first
        x, source = (_batch_first(t, swapped) for t in (query, key))
        sizes = len(x), self.num_heads, x.shape[1], source.shape[1]
        if is_causal and attn_mask is None:
            attn_mask = torch.ones(sizes[2:], dtype=torch.bool, device=x.device).triu(1)
        mask = _joined(_padding(key_padding_mask, sizes), _attention(attn_mask, sizes))
        result = self.layer(x, None if is_self else source, mask=mask, return_weights=need_weights)
        out, weights = result if need_weights else (result, None)
        weights = weights.mean(1) if weights is not None and average_attn_weights else weights
        if single:
            return out[0], None if weights is None else weights[0]
        return _batch_first(out, swapped), weights


def _batch_first(t: Tensor, swapped: bool) -> Tensor:
    """(B, T, E) of one text, or of several; and back."""
    return t.unsqueeze(0) if t.dim() == 2 else t.transpose(0, 1) if swapped else t


def _joined(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """What both masks show."""
    return other if one is None else one if other is None else one & other


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Are these two views of the same numbers?"""
    return a is b or ((a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride()) and a.numel() > 0)


def _padding(mask: Tensor | None, sizes: tuple[int, int, int, int]) -> Tensor | None:
    """key_padding_mask as a mask of regard, (B, 1, 1, S), where True is may attend."""
    if mask is None:
        return None
    B, _, _, S = sizes
    if tuple(mask.shape) not in [(B, S), (S,) if B == 1 else (B, S)]:
        raise ValueError(f"key_padding_mask ({describe_tensor(mask)}) must be (B, S) = ({B}, {S}), True where hidden")
    return _visible("key_padding_mask", mask).view(B, 1, 1, S)


def _attention(mask: Tensor | None, sizes: tuple[int, int, int, int]) -> Tensor | None:
    """attn_mask as a mask of regard, (1, 1, T, S) or (B, H, T, S), where True is may attend."""
    if mask is None:
        return None
    B, H, T, S = sizes
    if tuple(mask.shape) not in [(T, S), (B * H, T, S)]:
        rule = f"must be (T, S) = ({T}, {S}) or (B·H, T, S) = ({B * H}, {T}, {S}), True where hidden"
        raise ValueError(f"attn_mask ({describe_tensor(mask)}) {rule}")
    return _visible("attn_mask", mask).view(-1, H if mask.dim() == 3 else 1, T, S)


def _visible(name: str, mask: Tensor) -> Tensor:
    """A mask of torch, True or −∞ where a key is hidden, as one of regard, True where it may be attended to."""
    if mask.dtype is torch.bool:
        return ~mask
    if mask.is_floating_point():
        hidden = mask.isneginf()
        if bool((hidden | (mask == 0)).all()):
            return ~hidden
        remedy = "add them to the scores yourself, by regard.attend_in_steps"
        raise ValueError(f"{name} holds other numbers than 0 and −∞, which this layer does not add to scores; {remedy}")
    raise ValueError(f"{name} ({describe_tensor(mask)}) must be bool, True where hidden, or floats of 0 and −∞")
