"""Layouts: where the weights of an attention module are and what else it says about itself; the layer built from them.

Both are found by the names that people use; the orientation of a weight by type and shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.support import vocabulary as words
from regard.support.super_init import check_initialised
from regard.support.vocabulary import OUT_PROJECTIONS, PACKED_PROJECTIONS, PROJECTIONS

HEADS = (*words.HEADS, *words.HEADS_TOO)  # attributes of a module, or of its config
QKV = ("W_query", "W_key", "W_value")
# Of the names that are known, those that a message lists.
_SHOWN = ((*QKV,), ("W_q", "W_k", "W_v"), ("q_proj", "k_proj", "v_proj"), ("to_q", "to_k", "to_v"))


def find_weights(state: Mapping[str, Tensor], names: Mapping[str, str], who: str) -> dict[str, str]:
    """The module's names of W_query, W_key and W_value (or qkv) and, where there is one, out_proj."""
    stems = _chosen(state, names, who)
    if not set(stems) - {"out_proj"}:
        stems = {**_known(state, ""), **stems}
    if "W_query" not in stems and "qkv" not in stems:
        raise _unknown_layout(state, who)
    prefix = stems.get("qkv", stems.get("W_query", "")).rpartition(".")[0]
    known = _stems(state, f"{prefix}." if prefix else "")
    out = next((known[name] for name in OUT_PROJECTIONS if name in known), None)
    return stems if "out_proj" in stems or out is None else {**stems, "out_proj": out}


def _chosen(state: Mapping[str, Tensor], names: Mapping[str, str], who: str) -> dict[str, str]:
    """The names that were given, checked."""
    if wrong := set(names) - {*QKV, "qkv", "out_proj"}:
        rule = "its keys are W_query, W_key, W_value or qkv, and out_proj"
        raise ValueError(f"names has {', '.join(sorted(wrong))}; {rule}")
    stems = {ours: theirs.removesuffix(".weight") for ours, theirs in names.items()}
    if missing := [f"{stem!r} ({ours})" for ours, stem in stems.items() if not names_of(state, stem)[0]]:
        raise ValueError(f"names asks for {', '.join(missing)}, but {who} has only {_listed(state)}")
    projections = [ours for ours in stems if ours != "out_proj"]
    if projections and projections != ["qkv"] and set(projections) != set(QKV):
        rule = "it takes W_query, W_key and W_value together, or qkv alone"
        raise ValueError(f"names gives {', '.join(projections)}; {rule}")
    return stems


def _unknown_layout(state: Mapping[str, Tensor], who: str) -> ValueError:
    below = {name.rpartition(".")[0].rpartition(".")[0] for name in state} - {""}
    inside = sorted(prefix for prefix in below if _known(state, prefix + "."))
    return ValueError(
        f"{who} has no layout that adopt() knows; its parameters are {_listed(state)}. "
        f"Known are {'; '.join(', '.join(row) for row in _SHOWN)}, …; packed: {', '.join(PACKED_PROJECTIONS[:5])}, …; "
        f"and for the output {', '.join(OUT_PROJECTIONS[:8])}, …. "
        + (f"One is inside, at {inside[0]}: adopt(module.{inside[0]}). " if inside else "")
        + 'Or say which is which: names={"W_query": …, "W_key": …, "W_value": …, "out_proj": …} '
        'or names={"qkv": …, "out_proj": …}'
    )


def _known(state: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    stems = _stems(state, prefix)
    for row in PROJECTIONS:
        if all(name in stems for name in row):
            return {ours: stems[theirs] for ours, theirs in zip(QKV, row, strict=True)}
    return next(({"qkv": stems[name]} for name in PACKED_PROJECTIONS if name in stems), {})


def _stems(state: Mapping[str, Tensor], prefix: str) -> dict[str, str]:
    """The names below a prefix that have a weight, by their name in lower case without the prefix."""
    below = (key[len(prefix) :] for key in state if key.startswith(prefix))
    stems = [name.removesuffix(".weight").removesuffix("_weight") for name in below]
    return {stem.lower(): prefix + stem for stem in stems}


def names_of(state: Mapping[str, Tensor], stem: str) -> tuple[str, str]:
    """The full names of a projection's weight and bias; "" for one that the state does not have."""
    weights, biases = (f"{stem}.weight", f"{stem}_weight", stem), (f"{stem}.bias", f"{stem}_bias")
    return next((name for name in weights if name in state), ""), next((name for name in biases if name in state), "")


def _listed(state: Mapping[str, Tensor]) -> str:
    shown = list(state)[:12]
    return ", ".join(shown) + (f" and {len(state) - 12} more" if len(state) > 12 else "") or "none"


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


def orientation(
    state: Mapping[str, Tensor], stems: dict[str, str], module: Any, transposed: bool | None
) -> dict[str, bool]:
    """For each projection: is its weight (in, out), as for x @ weight? `transposed` decides where it is given."""
    by_shape = _by_shape(state, stems)
    is_module = isinstance(module, nn.Module)
    owners = dict(module.named_modules()) if is_module else {}
    result = {}
    for ours, stem in stems.items():
        by_type = type(owners[stem]).__name__ == "Conv1D" if stem in owners else None
        # A bare parameter of a module is nearly always used as x @ weight; of a state dict nothing is known.
        result[ours] = next(known for known in (transposed, by_type, by_shape, is_module) if known is not None)
    return result


def _by_shape(state: Mapping[str, Tensor], stems: dict[str, str]) -> bool | None:
    """The orientation of a weight that is not square, taken to be that of all of them; None if all are square."""
    shapes = {ours: tuple(state[names_of(state, stem)[0]].shape) for ours, stem in stems.items()}
    if any(len(shape) != 2 for shape in shapes.values()):
        return None
    for ours, (rows, columns) in shapes.items():
        bias = state.get(names_of(state, stems[ours])[1])
        d_out = bias.numel() if bias is not None else 3 * min(rows, columns) if ours == "qkv" else None
        d_out = shapes["out_proj"][0] if d_out is None and ours == "W_query" and "out_proj" in shapes else d_out
        if rows != columns and d_out in (rows, columns):
            return d_out == columns
    if "W_query" in shapes and shapes["W_query"] != shapes["W_key"]:  # grouped: only d_in is shared
        return shapes["W_query"][1] != shapes["W_key"][1]
    return None


def refuse_foreign_options(module: nn.Module) -> None:
    """Raise for options that regard's layer does not have, and for modules that cannot be adopted."""
    check_initialised(module)
    who = type(module).__name__
    if any(p.is_meta for p in module.parameters()):
        raise ValueError(f"{who} is on the meta device, where weights have no values; load its weights first")
    if isinstance(module, nn.MultiheadAttention):
        if module.bias_k is not None:
            raise ValueError(f"{who} was built with add_bias_kv=True, a learned extra key; rebuild it without")
        if module.add_zero_attn:
            raise ValueError(f"{who} was built with add_zero_attn=True, an extra key of zeros; rebuild it without")
        width = module.embed_dim
        if not module.kdim == module.vdim == width:
            rule = f"keys and values here are read from the queries' width, {width}; project them to {width} first"
            raise ValueError(f"{who} has kdim={module.kdim} and vdim={module.vdim}, but {rule}")
    if "position_embeddings" in inspect.signature(module.forward).parameters:
        reason = "rotates its queries by position_embeddings that its model computes, so it cannot run by itself"
        remedy = "load the whole model with regard.GPT.from_pretrained(…), whose layers are regard's"
        raise ValueError(f"{who} {reason}; {remedy}")
    if getattr(module, "is_cross_attention", False) is True:
        raise ValueError(f"{who} has is_cross_attention=True, with weights for two sequences; adopt its self-attention")


def find_number(owners: list[Any], names: tuple[str, ...]) -> int | None:
    """The first whole number among these attributes of the module or its config."""
    values = (getattr(owner, name, None) for owner in owners for name in names)
    return next((n for n in values if isinstance(n, int) and not isinstance(n, bool)), None)


def default_heads(stems: dict[str, str], who: str) -> int:
    """The number of heads of a module that has no attribute for it."""
    if "out_proj" not in stems:
        return 1  # nothing mixes heads: a single-head layer of the textbook
    usual = ", ".join(HEADS[:6])
    raise ValueError(f"{who} does not say how many heads it has ({usual}, …); pass it: adopt(…, num_heads=12)")


def find_dropout(module: Any) -> float:
    """The dropout on the attention weights."""
    attributes = (getattr(module, name, None) for name in (*words.ATTENTION_DROPOUT, "dropout"))
    values = (a.p if isinstance(a, nn.Dropout) else a for a in attributes)
    return next((float(p) for p in values if isinstance(p, (int, float)) and not isinstance(p, bool)), 0.0)


def is_gpt2(module: Any) -> bool:
    """Is it transformers' GPT2Attention? Told by name, because transformers is not imported here."""
    return any(c.__name__ == "GPT2Attention" for c in type(module).__mro__)


def gpt2_scale(module: Any) -> float | None:
    """The scale that a GPT2Attention was configured with; None where it is 1/√head_dim."""
    if not is_gpt2(module) or (module.scale_attn_weights and not module.scale_attn_by_inverse_layer_idx):
        return None
    scale = module.head_dim**-0.5 if module.scale_attn_weights else 1.0
    return scale / (module.layer_idx + 1) if module.scale_attn_by_inverse_layer_idx else scale


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


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and buffers, also those that are not saved."""
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def build_layer(plan: Plan, state: Mapping[str, Tensor]) -> MultiHeadAttention:
    """The layer with the weights copied in. What the module does not have is 0 or the identity, and frozen."""
    with torch.enable_grad():  # so that a slice of a weight requires a gradient where the weight does
        parts = find_projections(plan, state)
    q, k, out = parts["W_query"][0], parts["W_key"][0], parts.get("out_proj")
    with torch.device("meta"):  # no random initialisation: it would take time and advance the caller's random state
        sizes = (q.shape[1], len(q), plan.context_length, plan.dropout, plan.num_heads)
        layer = MultiHeadAttention(
            *sizes,
            qkv_bias=any(parts[ours][1] is not None for ours in QKV),
            causal=plan.causal is not False,
            num_kv_heads=len(k) // _head_dim(plan, q),
            out_bias=out is None or out[1] is not None,
            scale=plan.scale,
        )
    layer = layer.to(q.dtype).to_empty(device=q.device)
    with torch.no_grad():
        for ours in (*QKV, "out_proj"):
            linear = getattr(layer, ours)
            weight, bias = parts.get(ours, (torch.eye(len(q), dtype=q.dtype, device=q.device), None))
            linear.weight.copy_(weight).requires_grad_(weight.requires_grad)
            if linear.bias is not None:
                linear.bias.copy_(0 if bias is None else bias)
                linear.bias.requires_grad_(bias is not None and bias.requires_grad)
    return layer


def find_projections(plan: Plan, state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Weight (out, in) and bias of W_query, W_key, W_value and, where there is one, out_proj; shapes checked."""
    parts = {}
    for ours, stem in plan.stems.items():
        name, bias_name = names_of(state, stem)
        weight, bias = state[name], state.get(bias_name)
        if weight.dim() != 2 or not weight.is_floating_point():
            rule = "adopt() takes matrices of floating-point numbers"
            raise ValueError(f"{name} is {sizes_of(weight)}, {weight.dtype}; {rule}")
        parts[ours] = (weight.t() if plan.transposed[ours] else weight, bias)
        if bias is not None and tuple(bias.shape) != (len(parts[ours][0]),):
            _misfit(plan, state, "a bias must be as long as its projection is wide; is transposed right?")
    kinds = sorted({f"{t.dtype} on {t.device}" for pair in parts.values() for t in pair if t is not None})
    if len(kinds) > 1:
        remedy = "bring it to one with .to(dtype) and .to(device)"
        raise ValueError(f"{plan.who} has weights of several kinds ({', '.join(kinds)}); {remedy}")
    if "qkv" in parts:
        weight, bias = parts.pop("qkv")
        rows = len(weight)
        d_out = parts["out_proj"][0].shape[1] if "out_proj" in parts else rows // 3
        if (rows - d_out) % 2 or rows <= d_out:
            _misfit(plan, state, f"the rows of qkv ({rows}) must be d_out + 2 × the keys' width, with d_out={d_out}")
        widths = [d_out, (rows - d_out) // 2, (rows - d_out) // 2]
        weights = _by_projection(plan, weight).split(widths)
        biases = (None, None, None) if bias is None else _by_projection(plan, bias).split(widths)
        parts |= dict(zip(QKV, zip(weights, biases, strict=True), strict=True))
    _check_parts(plan, state, parts)
    return parts


def _by_projection(plan: Plan, packed: Tensor) -> Tensor:
    """The rows of a packed weight or bias, queries first, then keys, then values."""
    if not plan.head_by_head or len(packed) % (3 * plan.num_heads):
        return packed
    return packed.reshape(plan.num_heads, 3, -1, *packed.shape[1:]).transpose(0, 1).flatten(0, 2)


def _check_parts(plan: Plan, state: Mapping[str, Tensor], parts: dict[str, tuple[Tensor, Tensor | None]]) -> None:
    q, k, v = (parts[ours][0] for ours in QKV)
    d_out, head_dim = len(q), _head_dim(plan, q)
    if len({t.shape[1] for t in (q, k, v)}) > 1:
        _misfit(plan, state, "queries, keys and values must be read from one width, d_in; project them to it first")
    if len(k) != len(v) or (d_out == plan.num_heads * head_dim and (len(k) % head_dim or len(k) > d_out)):
        widths = f"a multiple of head_dim ({head_dim}) and at most {d_out}"
        _misfit(plan, state, f"keys and values must have one width, {widths}")
    if "out_proj" in parts and tuple(parts["out_proj"][0].shape) != (d_out, d_out):
        _misfit(plan, state, f"out_proj must be (d_out, d_out) = ({d_out}, {d_out})")


def _head_dim(plan: Plan, q: Tensor) -> int:
    return max(1, len(q) // max(1, plan.num_heads))  # an impossible num_heads is refused by the layer itself


def _misfit(plan: Plan, state: Mapping[str, Tensor], rule: str) -> NoReturn:
    weights, biases = zip(*(names_of(state, stem) for stem in plan.stems.values()), strict=True)
    shapes = ", ".join(f"{name} {sizes_of(state[name])}" for name in (*weights, *biases) if name)
    misfit = f"the weights of {plan.who} do not fit one layer with num_heads={plan.num_heads}"
    raise ValueError(f"{misfit}: {shapes}; {rule}")


def sizes_of(t: Tensor) -> str:
    """A tensor's shape as it is written in error messages."""
    return f"({', '.join(map(str, t.shape))})"
