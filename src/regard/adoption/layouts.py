"""Layouts: where the weights of an attention module are, whoever wrote it, and the layer built from them.

Names tell, by one table; shapes and types tell the rest. adopt.py tries whether what is built computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.traces.failures import explain_failure

_QKV = ("W_query", "W_key", "W_value")
# Other names for W_query, W_key, W_value; for the three packed in one, in this order; and for out_proj.
_APART = (
    _QKV,
    ("W_q", "W_k", "W_v"),
    ("q_linear", "k_linear", "v_linear"),
    ("q_proj", "k_proj", "v_proj"),
    ("to_q", "to_k", "to_v"),
    ("query", "key", "value"),
    ("wq", "wk", "wv"),
)
_PACKED = ("qkv_proj", "qkv", "in_proj", "c_attn", "to_qkv")
_OUT = ("out_proj", "o_proj", "W_o", "to_out", "to_out.0", "c_proj", "proj", "wo")
# Attributes of a module, or of its config.
HEADS = ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads", "h")
CONTEXT = ("context_length", "block_size", "max_seq_len", "max_position_embeddings", "n_positions")
_DROPOUT = ("attn_dropout", "attention_dropout", "attn_drop", "dropout")
MASK = ("mask", "attn_mask", "attention_mask", "causal_mask")


@dataclass(frozen=True)
class Plan:
    """What is known of a module: where its weights are and how it uses them."""

    who: str
    stems: dict[str, str]  # our name of a projection → theirs
    transposed: dict[str, bool]
    num_heads: int
    causal: bool | None
    context_length: int | None
    scale: float | None
    dropout: float
    head_by_head: bool = False  # packed as (heads, 3, head_dim) rather than (3, heads, head_dim)


def refuse_foreign_options(module: nn.Module) -> None:
    """Options that this layer has not, and modules that are none."""
    if clearer := explain_failure(module):
        raise clearer
    who = type(module).__name__
    if any(p.is_meta for p in module.parameters()):
        raise ValueError(f"{who} is on the meta device, where weights have no values; load its weights first")
    if isinstance(module, nn.MultiheadAttention):
        if module.bias_k is not None:
            raise ValueError(f"{who} was built with add_bias_kv=True, a learned extra key; rebuild it without")
        if module.add_zero_attn:
            raise ValueError(f"{who} was built with add_zero_attn=True, an extra key of zeros; rebuild it without")
        if (module.kdim, module.vdim) != (module.embed_dim, module.embed_dim):
            raise ValueError(
                f"{who} has kdim={module.kdim} and vdim={module.vdim}, but keys and values here are read from the "
                f"queries' width, {module.embed_dim}; project them to {module.embed_dim} first"
            )
    if getattr(module, "is_cross_attention", False) is True:
        raise ValueError(f"{who} has is_cross_attention=True, with weights for two sequences; adopt its self-attention")


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def find_weights(state: Mapping[str, Tensor], names: Mapping[str, str], who: str) -> dict[str, str]:
    """Where W_query, W_key and W_value (or qkv) and out_proj are; out_proj may be missing."""
    if wrong := set(names) - {*_QKV, "qkv", "out_proj"}:
        raise ValueError(
            f"names has {', '.join(sorted(wrong))}; its keys are W_query, W_key, W_value or qkv, and out_proj"
        )
    stems = {ours: theirs.removesuffix(".weight") for ours, theirs in names.items()}
    if missing := [f"{stem!r} ({ours})" for ours, stem in stems.items() if not weight_name(state, stem)]:
        raise ValueError(f"names asks for {', '.join(missing)}, but {who} has only {_listed(state)}")
    projections = [ours for ours in stems if ours != "out_proj"]
    if not projections:
        stems = {**_known(state, ""), **stems}
    elif projections != ["qkv"] and set(projections) != set(_QKV):
        raise ValueError(
            f"names gives {', '.join(projections)}; it takes W_query, W_key and W_value together, or qkv alone"
        )
    if "W_query" not in stems and "qkv" not in stems:
        below = {name.rpartition(".")[0].rpartition(".")[0] for name in state} - {""}
        inside = sorted(prefix for prefix in below if _known(state, prefix + "."))
        raise ValueError(
            f"{who} has no layout that adopt() knows; its parameters are {_listed(state)}. "
            f"Known are {'; '.join(', '.join(row) for row in _APART)}; packed: {', '.join(_PACKED)}; "
            f"and for the output {', '.join(_OUT)}. "
            + (f"One is inside, at {inside[0]}: adopt(module.{inside[0]}). " if inside else "")
            + 'Or say which is which: names={"W_query": …, "W_key": …, "W_value": …, "out_proj": …} '
            'or names={"qkv": …, "out_proj": …}'
        )
    prefix = stems.get("qkv", stems.get("W_query", "")).rpartition(".")[0]
    out = next((s for o in _OUT if weight_name(state, s := f"{prefix}.{o}" if prefix else o)), None)
    return stems if "out_proj" in stems or out is None else {**stems, "out_proj": out}


def _known(state: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    for row in _APART:
        if all(weight_name(state, prefix + name) for name in row):
            return {ours: prefix + theirs for ours, theirs in zip(_QKV, row, strict=True)}
    return next(({"qkv": prefix + name} for name in _PACKED if weight_name(state, prefix + name)), {})


def weight_name(state: Mapping[str, Tensor], stem: str) -> str | None:
    return next((key for key in (f"{stem}.weight", f"{stem}_weight", stem) if key in state), None)


def _bias(state: Mapping[str, Tensor], stem: str) -> Tensor | None:
    return next((state[key] for key in (f"{stem}.bias", f"{stem}_bias") if key in state), None)


def _listed(state: Mapping[str, Tensor]) -> str:
    shown = list(state)[:12]
    return ", ".join(shown) + (f" and {len(state) - 12} more" if len(state) > 12 else "") or "none"


def find_number(owners: list[Any], names: tuple[str, ...]) -> int | None:
    found = (getattr(owner, name, None) for owner in owners for name in names)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)


def heads_of(stems: dict[str, str], who: str) -> int:
    if "out_proj" not in stems:
        return 1  # heads with nothing to mix them: the textbook's single-head layers
    raise ValueError(f"{who} does not say how many heads it has ({', '.join(HEADS)}); pass it: adopt(…, num_heads=12)")


def find_dropout(module: Any) -> float:
    found = (getattr(module, name, None) for name in _DROPOUT)
    values = (d.p if isinstance(d, nn.Dropout) else d for d in found)
    return next((float(p) for p in values if isinstance(p, (int, float)) and not isinstance(p, bool)), 0.0)


def is_gpt2(module: Any) -> bool:
    return any(
        c.__name__ == "GPT2Attention" for c in type(module).__mro__
    )  # by name: transformers is not imported here


def gpt2_scale(module: Any) -> float | None:
    if not is_gpt2(module) or (module.scale_attn_weights and not module.scale_attn_by_inverse_layer_idx):
        return None
    scale = module.head_dim**-0.5 if module.scale_attn_weights else 1.0
    return scale / (module.layer_idx + 1) if module.scale_attn_by_inverse_layer_idx else scale


def stored_mask(state: Mapping[str, Tensor], stems: dict[str, str]) -> int | None:
    """The size of a causal mask kept beside the projections, if there is one (GPT-2 calls it bias)."""
    beside = next(iter(stems.values())).rpartition(".")[0]
    for name, t in state.items():
        square = t.dim() >= 2 and t.shape[-1] == t.shape[-2] and t.numel() == t.shape[-1] ** 2
        if name.rpartition(".")[0] == beside and name not in stems.values() and square and not t.is_meta:
            marked = t.detach().reshape(t.shape[-2:]) != 0
            if marked.equal(torch.ones_like(marked).tril()) or marked.equal(torch.ones_like(marked).triu(1)):
                return t.shape[-1]
    return None


def orientation(state: Mapping[str, Tensor], stems: dict[str, str], module: Any, told: bool | None) -> dict[str, bool]:
    """For each projection: is its weight (in, out), so that it is used as x @ weight?"""
    by_shape = _by_shape(state, stems)
    found = {}
    for ours, stem in stems.items():
        owner = dict(module.named_modules()).get(stem) if isinstance(module, nn.Module) else None
        by_type = None if owner is None else type(owner).__name__ == "Conv1D"
        # A bare parameter of a module is nearly always used as x @ weight; of a state dict nothing is known.
        usual = isinstance(module, nn.Module)
        found[ours] = next(known for known in (told, by_type, by_shape, usual) if known is not None)
    return found


def _by_shape(state: Mapping[str, Tensor], stems: dict[str, str]) -> bool | None:
    """One weight that is not square tells for all of them: what is stored together is stored alike."""
    shapes = {ours: tuple(state[weight_name(state, stem) or ""].shape) for ours, stem in stems.items()}
    if any(len(shape) != 2 for shape in shapes.values()):
        return None
    for ours, (rows, columns) in shapes.items():
        bias = _bias(state, stems[ours])
        d_out = bias.numel() if bias is not None else 3 * min(rows, columns) if ours == "qkv" else None
        d_out = shapes["out_proj"][0] if d_out is None and ours == "W_query" and "out_proj" in shapes else d_out
        if rows != columns and d_out in (rows, columns):
            return d_out == columns
    if "W_query" in shapes and shapes["W_query"] != shapes["W_key"]:  # grouped: only d_in is shared
        return shapes["W_query"][1] != shapes["W_key"][1]
    return None


def find_parts(plan: Plan, state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Weight (out, in) and bias of W_query, W_key, W_value and, where there is one, out_proj; shapes checked."""
    found = {}
    for ours, stem in plan.stems.items():
        name = weight_name(state, stem) or ""
        weight, bias = state[name], _bias(state, stem)
        if weight.dim() != 2 or not weight.is_floating_point():
            raise ValueError(
                f"{name} is {shape_of(weight)}, {weight.dtype}; adopt() takes matrices of floating-point numbers"
            )
        found[ours] = (weight.t() if plan.transposed[ours] else weight, bias)
    kinds = {(t.dtype, t.device) for pair in found.values() for t in pair if t is not None}
    if len(kinds) > 1:
        told = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ValueError(
            f"{plan.who} has weights of several kinds ({told}); bring it to one with .to(dtype) and .to(device)"
        )
    if "qkv" in found:
        packed = found.pop("qkv")
        rows = len(packed[0])
        d_out = found["out_proj"][0].shape[1] if "out_proj" in found else rows // 3
        if (rows - d_out) % 2 or rows <= d_out:
            _misfit(plan, state, f"the rows of qkv ({rows}) must be d_out + 2 × the keys' width, with d_out={d_out}")
        width = (rows - d_out) // 2
        for ours, first, last in zip(_QKV, (0, d_out, d_out + width), (d_out, d_out + width, rows), strict=True):
            bias = None if packed[1] is None else _unpacked(plan, packed[1])[first:last]
            found[ours] = (_unpacked(plan, packed[0])[first:last], bias)
    _check_parts(plan, state, found)
    return found


def _unpacked(plan: Plan, t: Tensor) -> Tensor:
    if not plan.head_by_head or len(t) % (3 * plan.num_heads):
        return t
    return t.reshape(plan.num_heads, 3, -1, *t.shape[1:]).transpose(0, 1).flatten(0, 2)


def _check_parts(plan: Plan, state: Mapping[str, Tensor], parts: dict[str, tuple[Tensor, Tensor | None]]) -> None:
    q, k, v = (parts[ours][0] for ours in _QKV)
    d_out, head_dim = len(q), _head_dim(plan, q)
    if len({t.shape[1] for t in (q, k, v)}) > 1:
        _misfit(plan, state, "queries, keys and values must be read from one width, d_in; project them to it first")
    if len(k) != len(v) or (d_out == plan.num_heads * head_dim and (len(k) % head_dim or len(k) > d_out)):
        _misfit(
            plan, state, f"keys and values must have one width, a multiple of head_dim ({head_dim}) and at most {d_out}"
        )
    if "out_proj" in parts and tuple(parts["out_proj"][0].shape) != (d_out, d_out):
        _misfit(plan, state, f"out_proj must be (d_out, d_out) = ({d_out}, {d_out})")
    if any(bias is not None and tuple(bias.shape) != (len(weight),) for weight, bias in parts.values()):
        _misfit(plan, state, "a bias must be as long as its projection is wide; is transposed right?")


def _head_dim(plan: Plan, q: Tensor) -> int:
    return max(1, len(q) // max(1, plan.num_heads))  # a num_heads that cannot be is refused by the layer itself


def _misfit(plan: Plan, state: Mapping[str, Tensor], rule: str) -> NoReturn:
    names = [weight_name(state, stem) or "" for stem in plan.stems.values()]
    names += [n for stem in plan.stems.values() for n in (f"{stem}.bias", f"{stem}_bias") if n in state]
    shapes = ", ".join(f"{name} {shape_of(state[name])}" for name in names)
    raise ValueError(
        f"the weights of {plan.who} do not fit one layer with num_heads={plan.num_heads}: {shapes}; {rule}"
    )


def shape_of(t: Tensor) -> str:
    return f"({', '.join(map(str, t.shape))})"


def build(plan: Plan, state: Mapping[str, Tensor]) -> MultiHeadAttention:
    """The layer, filled. What the module does not have is 0 or the identity, and frozen, so that it stays so."""
    with torch.enable_grad():  # so that a slice of a weight still knows whether the weight is trained
        parts = find_parts(plan, state)
    q, k, out = parts["W_query"][0], parts["W_key"][0], parts.get("out_proj")
    with torch.device("meta"):  # no random initialisation: it would cost time and the caller's random numbers
        layer = MultiHeadAttention(
            q.shape[1],
            len(q),
            plan.context_length,
            plan.dropout,
            plan.num_heads,
            qkv_bias=any(parts[ours][1] is not None for ours in _QKV),
            causal=plan.causal is not False,
            num_kv_heads=len(k) // _head_dim(plan, q),
            out_bias=out is None or out[1] is not None,
            scale=plan.scale,
        )
    layer = layer.to(q.dtype).to_empty(device=q.device)
    with torch.no_grad():
        for ours in (*_QKV, "out_proj"):
            linear = getattr(layer, ours)
            weight, bias = parts.get(ours, (torch.eye(len(q), dtype=q.dtype, device=q.device), None))
            linear.weight.copy_(weight).requires_grad_(weight.requires_grad)
            if linear.bias is not None:
                linear.bias.copy_(0 if bias is None else bias)
                linear.bias.requires_grad_(bias is not None and bias.requires_grad)
    return layer
