"""Layouts: where the weights of an attention module are, whoever wrote it.

They are found by name, in one table of the names that people use; their orientation by type and shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.support.vocabulary import OUT_PROJECTIONS, PACKED_PROJECTIONS, PROJECTIONS

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
        raise ValueError(
            f"names has {', '.join(sorted(wrong))}; its keys are W_query, W_key, W_value or qkv, and out_proj"
        )
    stems = {ours: theirs.removesuffix(".weight") for ours, theirs in names.items()}
    if missing := [f"{stem!r} ({ours})" for ours, stem in stems.items() if not weight_name(state, stem)]:
        raise ValueError(f"names asks for {', '.join(missing)}, but {who} has only {_listed(state)}")
    projections = [ours for ours in stems if ours != "out_proj"]
    if projections and projections != ["qkv"] and set(projections) != set(QKV):
        raise ValueError(
            f"names gives {', '.join(projections)}; it takes W_query, W_key and W_value together, or qkv alone"
        )
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


def weight_name(state: Mapping[str, Tensor], stem: str) -> str | None:
    """The full name of a projection's weight, if the state has it."""
    return next((key for key in (f"{stem}.weight", f"{stem}_weight", stem) if key in state), None)


def bias_names(stem: str) -> tuple[str, str]:
    """The names that a projection's bias may have."""
    return f"{stem}.bias", f"{stem}_bias"


def find_bias(state: Mapping[str, Tensor], stem: str) -> Tensor | None:
    """A projection's bias, if it has one."""
    return next((state[name] for name in bias_names(stem) if name in state), None)


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
    result = {}
    for ours, stem in stems.items():
        owner = dict(module.named_modules()).get(stem) if isinstance(module, nn.Module) else None
        by_type = None if owner is None else type(owner).__name__ == "Conv1D"
        # A bare parameter of a module is nearly always used as x @ weight; of a state dict nothing is known.
        usual = isinstance(module, nn.Module)
        result[ours] = next(known for known in (transposed, by_type, by_shape, usual) if known is not None)
    return result


def _by_shape(state: Mapping[str, Tensor], stems: dict[str, str]) -> bool | None:
    """The orientation of a weight that is not square, taken to be that of all of them; None if all are square."""
    shapes = {ours: tuple(state[weight_name(state, stem) or ""].shape) for ours, stem in stems.items()}
    if any(len(shape) != 2 for shape in shapes.values()):
        return None
    for ours, (rows, columns) in shapes.items():
        bias = find_bias(state, stems[ours])
        d_out = bias.numel() if bias is not None else 3 * min(rows, columns) if ours == "qkv" else None
        d_out = shapes["out_proj"][0] if d_out is None and ours == "W_query" and "out_proj" in shapes else d_out
        if rows != columns and d_out in (rows, columns):
            return d_out == columns
    if "W_query" in shapes and shapes["W_query"] != shapes["W_key"]:  # grouped: only d_in is shared
        return shapes["W_query"][1] != shapes["W_key"][1]
    return None
