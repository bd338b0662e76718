"""torch.nn.MultiheadAttention and TransformerEncoder: the operators of their fast path in eval, and the slow path.

The fast path is one operator with everything inside. It still runs; queries and keys are projected once more from its
arguments, and its masks (True = hidden there) are inverted.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.call import QK
from regard.attention.masks import EVERYTHING, Dense, Mask, Padding
from regard.heads.calls.call import Args, Kwargs, Origin, WatchedCall
from regard.heads.inputs.module_call import argument
from regard.heads.intercept.paths import PATCHES, Patch, active_interceptor, handles

if TYPE_CHECKING:
    from regard.heads.intercept.interceptor import Interceptor

# The methods that decide whether a subclass still takes the fast path.
FAST_PATHS = {
    nn.TransformerEncoder: ("forward",),
    nn.TransformerEncoderLayer: ("forward", "_sa_block"),
    nn.MultiheadAttention: ("forward",),
}
WITH_FAST_PATH = tuple(FAST_PATHS)
# The arguments of functions, in their order; those that are not needed here have no name.
_FORWARD = ("query", "", "", "", "num_heads", "", "", "bias_k", "", "add_zero_attn")
_ATTENTION = (
    *("query", "key", "", "embed_dim", "num_heads", "qkv_weight", "qkv_bias", "", "", "mask", "", "", "mask_type"),
)
_LAYER = (
    *("query", "embed_dim", "num_heads", "qkv_weight", "qkv_bias", "", "", "", "norm_first", "eps"),
    *("norm_weight_1", "norm_bias_1", "", "", "", "", "", "", "mask", "mask_type"),
)


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


def shape_of(args: Args, kwargs: Kwargs) -> MultiheadShape:
    """Read the arguments of F.multi_head_attention_forward."""
    given = dict(zip(_FORWARD, args, strict=False)) | kwargs
    query, extra_keys = given["query"], (given["bias_k"] is not None) + bool(given["add_zero_attn"])
    return MultiheadShape(query.shape[1] if query.dim() == 3 else 1, int(given["num_heads"]), extra_keys)


def call_of_attention(*args: Any, **kwargs: Any) -> WatchedCall:
    """The arguments of torch._native_multi_head_attention as a call."""
    given = dict(zip(_ATTENTION, args, strict=False)) | kwargs
    return _call(given["query"], given["key"], given)


def call_of_layer(*args: Any, **kwargs: Any) -> WatchedCall:
    """The arguments of torch._transformer_encoder_layer_fwd as a call."""
    given = dict(zip(_LAYER, args, strict=False)) | kwargs
    x = given["query"] if args else kwargs["src"]
    if given["norm_first"]:
        x = F.layer_norm(x, (given["embed_dim"],), given["norm_weight_1"], given["norm_bias_1"], given["eps"])
    return _call(x, x, given).with_origin(module="self_attn")  # where it runs without the fast path


OPERATORS: dict[str, Callable[..., WatchedCall]] = {
    "_native_multi_head_attention": call_of_attention,
    "_transformer_encoder_layer_fwd": call_of_layer,
}


def _call(query: Tensor, key: Tensor, given: dict[str, Any]) -> WatchedCall:
    E, H, weight, bias = (given[name] for name in ("embed_dim", "num_heads", "qkv_weight", "qkv_bias"))
    hidden = given.get("mask")
    mask: Mask = EVERYTHING
    real = None
    if query.is_nested:
        lengths = torch.tensor([t.shape[0] for t in query.unbind()], device=query.device)
        key = query = torch.nested.to_padded_tensor(query, 0.0)
        mask, real = Padding(lengths), torch.arange(query.shape[1], device=query.device) < lengths[:, None]
    elif hidden is not None:
        allowed = ~hidden.bool()  # the operator takes numbers as well: all but 0 hide
        is_padding = given.get("mask_type") == 1  # one row per text
        mask, real = (Padding(allowed), allowed) if is_padding else (Dense(allowed), None)
    q = F.linear(query, weight[:E], bias[:E]).unflatten(-1, (H, -1)).transpose(1, 2)
    k = F.linear(key, weight[E : 2 * E], bias[E : 2 * E]).unflatten(-1, (H, -1)).transpose(1, 2)
    return WatchedCall(QK(q=q, k=k, scale=q.shape[-1] ** -0.5, mask=mask), Origin(real=real))


@handles("multi_head_attention_forward")
def multi_head_attention(interceptor: Interceptor, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """F.multi_head_attention_forward: the functions that it calls are intercepted one by one."""
    shape, interceptor.multihead = interceptor.multihead, shape_of(args, kwargs)
    call = interceptor.running[0].calls[-1]
    if interceptor.origins is not None and isinstance(call.module, nn.MultiheadAttention):
        for i, name in enumerate(("query", "key", "value")):  # which were transposed without our mode
            interceptor.origins.hand_on((argument(i, name, call.args, call.kwargs),), args[i], is_learned=False)
    was_on, interceptor.mode.is_on = interceptor.mode.is_on, False  # torch takes a mode off while it handles a function
    try:
        with interceptor.mode.switch(on=True):
            return without_dispatch(function)(*args, **kwargs)
    finally:
        interceptor.multihead, interceptor.mode.is_on = shape, was_on


def _with_mode_on(original: Any) -> Any:
    @wraps(original)
    def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
        interceptor = active_interceptor()
        with nullcontext() if interceptor is None else interceptor.mode.switch(on=True):  # no fast path was taken
            return original(*args, **kwargs)

    return multi_head_attention_forward


def _reporting(call_of: Callable[..., WatchedCall], original: Any) -> Any:
    def operator(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        interceptor = active_interceptor()
        if interceptor is not None:
            with interceptor.errors_naming_the_module(), torch.no_grad():
                call = call_of(*args, **kwargs)
            if interceptor.origins is not None:
                given = (*args, *kwargs.values())
                interceptor.origins.ask(given[0], given[1] if "attention" in original.__name__ else given[0])
            if interceptor.edits(call.origin.module) or interceptor.needs_contexts:
                name = original.__name__
                raise ValueError(f"{name} computes attention as one operator, whose heads cannot be reached")
            interceptor.report(call)
        return out

    return operator


PATCHES.append(Patch(F, "multi_head_attention_forward", _with_mode_on))
PATCHES.extend(Patch(torch, name, partial(_reporting, call)) for name, call in OPERATORS.items())


def may_mix_last_axis(module: nn.Module) -> bool:
    """Has this module weights for the last axis of its input? Those of convolutions are for the second one."""
    return bool("weight" in module._parameters or module._modules) and not isinstance(module, (nn.Conv1d, nn.Conv2d))
