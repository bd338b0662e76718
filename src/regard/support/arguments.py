"""Argument checks that all layers share; each error gives the rule, the values and the remedy."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from regard.support import vocabulary as words
from regard.support.argument_names import named

P = ParamSpec("P")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_WIDTH = ("d_in", "d_out")
# Other names for the arguments of a layer. An argument that has no counterpart has the reason.
_OTHER_NAMES: dict[str, tuple[str, ...] | str] = {
    **dict.fromkeys((*words.WIDTH, *words.WIDTH_TOO), _WIDTH),
    **dict.fromkeys((*words.HEADS, *words.HEADS_TOO), ("num_heads",)),
    **dict.fromkeys((*words.KV_HEADS, *words.KV_HEADS_TOO), ("num_kv_heads",)),
    **dict.fromkeys((*words.CONTEXT, *words.CONTEXT_TOO), ("context_length",)),
    **dict.fromkeys((*words.DROPOUT, *words.DROPOUT_TOO), ("dropout",)),
    **dict.fromkeys(words.BIAS, ("qkv_bias",)),
    **dict.fromkeys(words.CAUSAL, ("causal",)),
    "batch_first": "x is always (B, T, d_in)",
    **dict.fromkeys(words.HEAD_DIM, "it is d_out / num_heads"),
    **dict.fromkeys((*words.LAYERS, *words.VOCABULARY), "it belongs to a model, not to one layer"),
}
_USUAL = {"context_length": "1024", "dropout": "0.0"}


def check_width(x: Tensor, d_in: int) -> None:
    """x must be a tensor of shape (B, T, d_in)."""
    check_tensor(x=x)
    if not (x.is_floating_point() or x.is_complex()):
        remedy = "use x.float(), or nn.Embedding first where these are token ids"
        raise ValueError(f"x must hold floating-point numbers, but is {describe_tensor(x)}; {remedy}")
    if x.dim() != 3:
        raise ValueError(f"x must be (B, T, d_in), but has shape {tuple(x.shape)}; add a batch axis with x[None]")
    if x.shape[2] != d_in:
        remedy = f"project it first, or build the layer with d_in={x.shape[2]}"
        raise ValueError(f"x has width {x.shape[2]} but this layer was built with d_in={d_in}; {remedy}")


def check_tensor(**values: Any) -> None:
    """Values must be tensors; the error says how to make one of a list or a NumPy array."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, not {type(value).__name__}; {tensor_remedy(name, value)}")


def tensor_remedy(name: str, value: Any) -> str:
    """How to make a tensor of a value, for messages: pass torch.tensor(x)."""
    if isinstance(value, (list, tuple)):
        return f"pass torch.tensor({name})"
    return f"pass torch.as_tensor({name})" if hasattr(value, "__array__") else "pass a tensor"


def check_length(tokens: int, context_length: int, what: str = "layer") -> None:
    """A text must fit context_length."""
    if tokens > context_length:
        remedy = f"pass at most {context_length}, or build the {what} with context_length={tokens} or more"
        raise ValueError(f"{tokens} tokens do not fit context_length={context_length}; {remedy}")


def check_whole(**sizes: int) -> None:
    """Sizes must be whole numbers of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{named(name, size)} must be a whole number of at least 1")


def check_heads(d_out: int, num_heads: int) -> None:
    """The heads share the width evenly."""
    if d_out % num_heads:
        below, above = d_out // num_heads * num_heads, (d_out // num_heads + 1) * num_heads
        heads = near_divisors(d_out, num_heads)
        widths = f"{below} or {above}" if below else str(above)
        remedy = f"try {widths}, or {heads} head{'s' * (heads != '1')}"
        raise ValueError(f"d_out ({d_out}) must be divisible by num_heads ({num_heads}); {remedy}")


def near_divisors(width: int, heads: int) -> str:
    """The numbers of heads near this one that do divide the width, for messages: the next below and two above.

    >>> near_divisors(768, 7), near_divisors(7, 5), near_divisors(5, 12)
    ('6, 8 or 12', '1 or 7', '5')
    """
    small = [n for n in range(1, math.isqrt(width) + 1) if width % n == 0]
    divisors = sorted({*small, *(width // n for n in small)})
    near = [*[n for n in divisors if n < heads][-1:], *[n for n in divisors if n > heads][:2]]
    *first, last = map(str, near)
    return f"{', '.join(first)} or {last}" if first else last


def check_dropout(dropout: float) -> None:
    """Dropout is a share of the weights."""
    check_share("dropout", dropout, "0.1 is usual, 0.0 is none")


def check_share(name: str, share: float, usual: str) -> None:
    """A share is at least 0 and below 1."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(f"{named(name, share)} must be at least 0 and below 1; {usual}")


def autocast_dtype(kind: str) -> torch.dtype | None:
    """The dtype of torch.autocast on this device type; None where it is off or not supported (meta)."""
    return torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else None


def is_exporting() -> bool:
    """Is torch.export running? By its own flag: before 2.12, torch.compiler.is_exporting() is True in every graph."""
    return bool(torch.compiler._is_exporting_flag)


def is_integer(t: Tensor) -> bool:
    """Does the tensor hold whole numbers? Booleans are not numbers."""
    return not t.dtype.is_floating_point and not t.dtype.is_complex and t.dtype is not torch.bool


def describe_tensor(t: Tensor) -> str:
    """Dtype and shape, for messages: "bool of shape (2, 3)"."""
    return f"{name_of(t.dtype)} of shape {tuple(t.shape)}"


def name_of(dtype: torch.dtype) -> str:
    """A dtype without torch's prefix: "float32"."""
    return str(dtype).removeprefix("torch.")


def list_few(t: Tensor) -> str:
    """The first six numbers of a tensor, for messages: "5, 3, 0"."""
    few = [str(int(i)) for i in t.flatten()[:6]]
    return ", ".join(few) + (", …" if t.numel() > 6 else "")


def explain_wrong_call(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate a layer's __init__: a call that does not fit its signature is answered with one that does.

    The error is a TypeError, as Python's own. It knows what other texts call the arguments.
    """

    @wraps(init)
    def build(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            init(*args, **kwargs)
        except TypeError:
            if error := _misnamed_or_missing(init, args[1:], kwargs):
                raise error from None
            raise

    return build


_OWN_CALL = (
    "this layer makes queries, keys and values of one input itself: layer(x), and layer(x, source) for keys from "
    "another text; mask=… is True where a key may be attended to, and return_weights=True gives (out, weights). For a "
    "layer that is called like torch.nn.MultiheadAttention: regard.adopt(module, drop_in=True)"
)


def renamed(**names: str) -> Callable[[Decorated], Decorated]:
    """Decorate a layer's forward whose keywords have new names (old="new"): they work until 0.3, with a warning.

    A call like that of torch.nn.MultiheadAttention is a TypeError that says how to call this one.
    """

    def decorate(method: Decorated) -> Decorated:
        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > 2 or "query" in kwargs or "key_padding_mask" in kwargs or "need_weights" in kwargs:
                raise TypeError(_OWN_CALL)
            for old in [name for name in names if name in kwargs]:
                text = f"{old}= is {names[old]}= now; the old keyword goes in 0.3"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                kwargs[names[old]] = kwargs.pop(old)
            return method(self, *args, **kwargs)

        return cast(Decorated, call)

    return decorate


def _misnamed_or_missing(init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError | None:
    """The error for a call that lacks required arguments or uses other names; None for any other call."""
    parameters = list(inspect.signature(init).parameters.values())[1:]  # without self
    names = [p.name for p in parameters]
    required = [p.name for p in parameters if p.default is p.empty]
    given, notes = _renamed(kwargs, names)
    by_position = dict(zip(names, args, strict=False))
    if "num_heads" in names and "num_heads" not in given and _are_width_and_heads(args):
        width, heads = args[:2]
        by_position = dict(zip(("d_in", "num_heads", "dropout"), args, strict=False))
        notes.append(f"(d_model={width}, num_heads={heads}) is another layer's order")
    given = by_position | given
    if not notes and all(name in given for name in required):
        return None
    for one, other in (_WIDTH, _WIDTH[::-1]):
        if other in given:
            given.setdefault(one, given[other])
    values = {name: _shown(given[name]) if name in given else _USUAL.get(name, "…") for name in names}
    right = ", ".join(f"{name}={values[name]}" for name in names if name in given or name in required)
    cls = init.__qualname__.split(".")[0]
    was = ", ".join([*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in kwargs.items())])
    return TypeError(
        f"{cls} takes ({', '.join(required)}), but was called with ({was}); "
        + "".join(f"{note}; " for note in notes)
        + f"write {cls}({right})"
        + ("; it hides the future unless causal=False" if notes and "causal" in names and "causal" not in given else "")
    )


def _renamed(kwargs: dict[str, Any], names: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The arguments under the names that they have here, and a note for each that had another."""
    given = {name: value for name, value in kwargs.items() if name in names}
    notes = []
    for name in [name for name in kwargs if name not in names]:
        ours = _OTHER_NAMES.get(name, tuple(get_close_matches(name, names, 1)))
        if isinstance(ours, str):
            notes.append(f"{name} is left out, because {ours}")
        elif ours and all(our in names for our in ours):
            given |= {our: kwargs[name] for our in ours if our not in given}
            notes.append(f"{name} is {' and '.join(ours)} here")
        else:
            notes.append(f"there is no {name} here")
    return given, notes


def _are_width_and_heads(args: tuple[Any, ...]) -> bool:
    """Are these (d_model, num_heads), or (d_model, num_heads, dropout)?"""
    if [type(arg) for arg in args] not in ([int, int], [int, int, float]):
        return False
    width, heads, *dropout = args
    return 0 < heads < width and width % heads == 0 and all(p < 1 for p in dropout)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (int, float, str)) or value is None else type(value).__name__
