"""torch.nn.MultiheadAttention and TransformerEncoder: the operators of their fast path in eval, and the slow path.

The fast path is one operator with everything inside. It still runs; queries and keys are projected once more from its
arguments, and its masks (True = hidden there) are inverted.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.call import QK
from regard.attention.masks import EVERYTHING, Dense, Mask, Padding
from regard.heads.calls.call import Origin, WatchedCall

# The methods that decide whether a subclass still takes the fast path.
FAST_PATHS = {
    nn.TransformerEncoder: ("forward",),
    nn.TransformerEncoderLayer: ("forward", "_sa_block"),
    nn.MultiheadAttention: ("forward",),
}


WITH_FAST_PATH = tuple(FAST_PATHS)


class MultiheadShape(NamedTuple):
    """What a call of F.multi_head_attention_forward says about the attention inside."""

    batch: int
    heads: int
    extra_keys: int  # appended to the keys of the text by add_bias_kv and add_zero_attn


def may_take_fast_path(module: nn.Module) -> bool:
    """May this module take the fast path? It does not under a torch function mode, such as ours."""
    kind = type(module)
    for base, names in FAST_PATHS.items():
        if isinstance(module, base):
            return "forward" not in module.__dict__ and all(getattr(kind, n) is getattr(base, n) for n in names)
    return False


def without_dispatch(function: Any) -> Any:
    """A copy of F.multi_head_attention_forward that does not pass itself to torch function modes as a whole."""
    function = getattr(function, "__wrapped__", function)  # while a model is watched, a wrapper of ours is in its place
    if not isinstance(function, types.FunctionType):
        return function
    names = {**function.__globals__, "has_torch_function": lambda _: False}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def shape_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> MultiheadShape:
    """Read the arguments of F.multi_head_attention_forward."""
    query = args[0] if args else kwargs["query"]
    heads = args[4] if len(args) > 4 else kwargs["num_heads"]
    bias_k = args[7] if len(args) > 7 else kwargs["bias_k"]
    add_zero_attn = args[9] if len(args) > 9 else kwargs["add_zero_attn"]
    extra_keys = (bias_k is not None) + bool(add_zero_attn)
    return MultiheadShape(query.shape[1] if query.dim() == 3 else 1, int(heads), extra_keys)


def call_of_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> WatchedCall:
    """The arguments of torch._native_multi_head_attention as a call."""
    return _call(query, key, embed_dim, num_head, qkv_weight, qkv_bias, mask, mask_type)


def call_of_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> WatchedCall:
    """The arguments of torch._transformer_encoder_layer_fwd as a call."""
    x = F.layer_norm(src, (embed_dim,), norm_weight_1, norm_bias_1, eps) if norm_first else src
    call = _call(x, x, embed_dim, num_heads, qkv_weight, qkv_bias, mask, mask_type)
    return call.with_origin(module="self_attn")  # relative to the layer: where it runs without the fast path


OPERATORS: dict[str, Callable[..., WatchedCall]] = {
    "_native_multi_head_attention": call_of_attention,
    "_transformer_encoder_layer_fwd": call_of_layer,
}


def _call(
    query: Tensor,
    key: Tensor,
    E: int,
    H: int,
    weight: Tensor,
    bias: Tensor,
    hidden: Tensor | None,
    mask_type: int | None,
) -> WatchedCall:
    lengths = None
    if query.is_nested:
        lengths = torch.tensor([t.shape[0] for t in query.unbind()], device=query.device)
        key = query = torch.nested.to_padded_tensor(query, 0.0)
    with torch.no_grad():
        q = F.linear(query, weight[:E], bias[:E]).unflatten(-1, (H, -1)).transpose(1, 2)
        k = F.linear(key, weight[E : 2 * E], bias[E : 2 * E]).unflatten(-1, (H, -1)).transpose(1, 2)
    mask: Mask = EVERYTHING
    real = None
    if lengths is not None:
        mask = Padding(lengths)
        real = torch.arange(q.shape[2], device=q.device) < lengths[:, None]
    elif hidden is not None:
        allowed = ~hidden.bool()  # the operator takes numbers as well: all but 0 hide
        is_padding = mask_type == 1  # one row per text
        mask, real = (Padding(allowed), allowed) if is_padding else (Dense(allowed), None)
    return WatchedCall(QK(q=q, k=k, scale=q.shape[-1] ** -0.5, mask=mask), Origin(real=real))
