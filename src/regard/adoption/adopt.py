"""adopt: the fast layer, with the weights of an attention module that somebody else wrote.

Where the weights are, layouts.py reads from their names. Whether the two then compute the same is not
assumed but tried: both run on random input, with the weights as they are and with random ones.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from regard.adoption.layouts import (
    CONTEXT,
    HEADS,
    MASK,
    Plan,
    build,
    find_dropout,
    find_number,
    find_parts,
    find_weights,
    gpt2_scale,
    heads_of,
    is_gpt2,
    orientation,
    refuse_foreign_options,
    shape_of,
    state_of,
    stored_mask,
    weight_name,
)
from regard.attention.layer import MultiHeadAttention
from regard.traces.failures import explain_failure
from regard.traces.torch_calls import TorchCalls


def adopt(
    module: nn.Module | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    causal: bool | None = None,
    context_length: int | None = None,
    scale: float | None = None,
    names: Mapping[str, str] | None = None,
    transposed: bool | None = None,
) -> MultiHeadAttention:
    """The fast layer that computes what an attention module of yours computes, with a copy of its weights.

    >>> theirs = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> layer = adopt(theirs)
    >>> x = torch.randn(3, 5, 8)
    >>> torch.allclose(layer(x), theirs(x, x, x)[0], atol=1e-6)
    True

    It takes the textbook layers, torch.nn.MultiheadAttention, transformers' GPT2Attention, and modules whose
    projections have usual names (W_query, W_q, q_linear, q_proj, to_q, query; qkv_proj, qkv, in_proj, c_attn).
    dtype, device, training mode, frozen weights and the dropout on the weights are kept; a missing out_proj becomes
    a frozen identity. Dropout on the output (resid_dropout) and hooks are not part of this layer. It is batch-first,
    (B, T, d_in), whatever the module was.

    A module is run beside the layer, in float64 on copies; if they differ, a ValueError says by how much and why.

    Say what cannot be found:
        num_heads: where no attribute of the module tells.
        causal: hide the future; unless given, it is found by trying. A module that takes a mask can be adopted
            with causal=True, and is then tried with a causal mask.
        context_length: the longest sequence; unless given, the module's own, else without limit.
        scale: what scores are multiplied by, where it is not 1/√head_dim.
        names: which weight is which, for W_query, W_key, W_value or qkv (the three packed in this order), out_proj.
        transposed: weights are (in, out), as for x @ weight; else (out, in), as in nn.Linear. Asked only where
            neither type nor shape tells.

    A state dict may stand for the module. It needs num_heads, and causal unless a causal mask is stored in it.
    With nothing to run, only shapes are checked, weights whose shapes do not tell are read as nn.Linear's, and
    dropout is 0.

    >>> state = {f"attn.{n}.weight": torch.randn(8, 8) for n in "qkvo"}
    >>> names = {"W_query": "attn.q", "W_key": "attn.k", "W_value": "attn.v", "out_proj": "attn.o"}
    >>> adopt(state, names=names, num_heads=2, causal=True).W_key.weight.equal(state["attn.k.weight"])
    True
    """
    if isinstance(module, type):
        raise ValueError(
            f"adopt() takes over weights, and a class has none; pass an instance: adopt({module.__name__}(...))"
        )
    if isinstance(module, MultiHeadAttention):
        return copy.deepcopy(module)
    if isinstance(module, nn.Module):
        refuse_foreign_options(module)
        state, who = state_of(module), type(module).__name__
        owners = [owner for owner in (module, getattr(module, "config", None)) if owner is not None]
    elif isinstance(module, Mapping):
        # Aliases that ask for gradients: what is adopted from plain tensors is there to be trained.
        state = {
            n: t.detach().requires_grad_(t.is_floating_point()) for n, t in module.items() if isinstance(t, Tensor)
        }
        owners, who = [], "the state dict"
    else:
        raise ValueError(f"adopt() takes a module or a state dict, not {type(module).__name__}")

    stems = find_weights(state, names or {}, who)
    limit = find_number(owners, CONTEXT) or stored_mask(state, stems)
    plan = Plan(
        who=who,
        stems=stems,
        transposed=orientation(state, stems, module, transposed),
        num_heads=find_number(owners, HEADS) or heads_of(stems, who) if num_heads is None else num_heads,
        causal=causal,
        context_length=limit if context_length is None else context_length,
        scale=scale if scale is not None else gpt2_scale(module),
        dropout=find_dropout(module),
    )
    if isinstance(module, nn.Module):
        plan = _verified(plan, module, min(7, limit or 7, context_length or 7))
        return build(plan, state).train(module.training)
    if causal is None and stored_mask(state, stems) is None:
        raise ValueError(
            "a state dict does not say whether its layer hides the future; "
            "pass causal=True (GPT and other decoders) or causal=False (encoders)"
        )
    return build(replace(plan, causal=causal is not False), state)


def _verified(plan: Plan, module: nn.Module, T: int) -> Plan:
    """Run both on random input; hand back the plan with what was found out, or say why they differ."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for dtype in (torch.float64, torch.float32):
            twin = _twin(module, dtype)
            numbers = torch.Generator("cpu").manual_seed(T)
            d_in = find_parts(plan, state_of(twin))["W_query"][0].shape[1]
            x = torch.randn(2, T, d_in, dtype=dtype, generator=numbers, device="cpu")
            try:
                _run(twin, x)
                break
            except ValueError:  # float64 lets no mistake hide behind rounding, but some code insists on float32
                if dtype is torch.float32:
                    raise
        # Weights that start at 0 (often out_proj and biases) would hide everything: so random ones are tried too.
        shaken = _twin(twin, dtype)
        for p in shaken.parameters():
            p.normal_(std=max(1, *p.shape) ** -0.5 if p.dim() else 1.0, generator=numbers)
        if plan.causal is None:
            known = False if isinstance(module, nn.MultiheadAttention) else True if is_gpt2(module) else None
            plan = replace(plan, causal=_hides_the_future(shaken, x) if known is None else known)
        for candidate in (plan, replace(plan, head_by_head=True)) if "qkv" in plan.stems else (plan,):
            if _same(candidate, shaken, x) and _same(candidate, twin, x):
                return candidate
        raise _explained(plan, twin if _same(plan, shaken, x) else shaken, x)


def _twin(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy to try things on: in eval(), on the CPU, without hooks."""
    spared: dict[int, Any] = {}
    for part in module.modules():
        # Tensors kept from the last run have a history, which deepcopy refuses; hooks may lead anywhere.
        spared |= {id(t): t.detach().clone() for t in vars(part).values() if isinstance(t, Tensor) and not t.is_leaf}
        spared |= {id(hooks): type(hooks)() for hooks in (part._forward_hooks, part._forward_pre_hooks)}
    twin = copy.deepcopy(module, spared).to("cpu", dtype).eval()
    if is_gpt2(twin):  # the same mathematics, in a form that runs here and keeps float64
        gpt2: Any = twin
        gpt2.reorder_and_upcast_attn = False
        if gpt2.config._attn_implementation not in ("eager", "sdpa"):
            gpt2.config._attn_implementation = "eager"
    return twin


def _run(twin: nn.Module, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, float]:
    """The module's output (B, T, d_out), and how exact it can be."""
    given = x.transpose(0, 1) if getattr(twin, "batch_first", True) is False else x
    parameters = inspect.signature(twin.forward).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    takes = [p.name for p in parameters if p.name in MASK]
    everything = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device="cpu")
    args = [(everything if mask is None else mask) if name in MASK else given for name in required or ["x"]]
    kwargs = {takes[0]: mask} if mask is not None and takes and takes[0] not in required else {}
    try:
        with TorchCalls(twin) as recorded:
            found = twin(*args, **kwargs)
    except Exception as error:
        raise explain_failure(error) or _failed(twin, x, error) from error
    out = next((t for t in found if isinstance(t, Tensor)), None) if isinstance(found, (tuple, list)) else found
    if not isinstance(out, Tensor):
        raise ValueError(
            f"{type(twin).__name__} returns {type(found).__name__}; return a tensor, or a tuple that starts with it"
        )
    # A module may compute something in float32 whatever it is given, such as torch.sqrt(torch.tensor(8.0)).
    narrow = [t[t.isfinite()] for _, _, t in recorded.calls if t.is_floating_point() and t.dtype is not torch.float64]
    exact = not any(bool(t.frac().any()) for t in narrow)
    return (out if given is x else out.transpose(0, 1)), 1e-9 if exact else 1e-5


def _failed(twin: nn.Module, x: Tensor, error: Exception) -> ValueError:
    remedy = f"make it run on torch.randn{shape_of(x)} first"
    if isinstance(error, NameError):
        remedy = f"define {error.name} in forward, for example by batch_size, num_tokens, d_in = x.shape"
        remedy = "write import torch.nn.functional as F at the top of its file" if error.name == "F" else remedy
    said = str(error).strip().split("\n")[0]
    return ValueError(
        f"{type(twin).__name__} itself failed on x of shape {shape_of(x)}: {type(error).__name__}: {said}; {remedy}"
    )


def _hides_the_future(twin: nn.Module, x: Tensor) -> bool:
    """Change the last token: does any earlier output change?"""
    changed = torch.cat([x[:, :-1], -x[:, -1:]], dim=1)
    (before, _), (after, _) = _run(twin, x), _run(twin, changed)
    return _close(after[:, :-1], before[:, :-1], 1e-12) if x.shape[1] > 1 else True


def _same(plan: Plan, twin: nn.Module, x: Tensor) -> bool:
    ours = _layer_out(plan, twin, x)
    return any(_close(ours, theirs, tolerance) for theirs, tolerance in _answers(twin, x, plan.causal is True))


def _layer_out(plan: Plan, twin: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = build(plan, state_of(twin)).eval()(x)
    return out


def _answers(twin: nn.Module, x: Tensor, causal: bool) -> Iterator[tuple[Tensor, float]]:
    """What the module says by itself and, where causality is the caller's affair, with each usual form of mask."""
    yield _run(twin, x)
    if not causal or not any(name in MASK for name in inspect.signature(twin.forward).parameters):
        return
    seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device="cpu").tril()
    for mask in (seen, ~seen, torch.zeros_like(seen, dtype=x.dtype).masked_fill(~seen, -torch.inf)):
        for shaped in (mask, mask.expand(len(x), -1, -1)):
            try:
                yield _run(twin, x, shaped)
            except ValueError:  # not this module's form of mask
                continue


def _close(ours: Tensor, theirs: Tensor, tolerance: float) -> bool:
    if ours.shape != theirs.shape:
        return False
    return bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max()) if ours.numel() else True


def _explained(plan: Plan, twin: nn.Module, x: Tensor) -> ValueError:
    """Say by how much they differ and, by trying what people do instead, why."""
    answers, ours = list(_answers(twin, x, plan.causal is True)), _layer_out(plan, twin, x)
    theirs = answers[0][0]
    if theirs.shape != ours.shape:
        return ValueError(
            f"{plan.who} turns {shape_of(x)} into {shape_of(theirs)}, but the weights that were found make {shape_of(ours)}; "
            "adopt the attention alone, or say which weights are its with names"
        )
    gap, size = (ours - theirs).abs().max(), theirs.abs().max()
    told = f"{plan.who} computes something else: outputs differ by {gap:.2g}, where they reach {size:.2g}. "
    if not _run(twin, x)[0].equal(theirs):
        return ValueError(
            f"{told}Run twice in eval() it answers differently; use nn.Dropout, or pass training=self.training"
        )
    layer = build(plan, state_of(twin)).eval()
    D, d_out = layer.head_dim, layer.d_out
    scales = (
        (plan.scale, "", ""),
        (None, f"its scores are divided by √head_dim (√{D})", "leave scale out"),
        (
            d_out**-0.5,
            f"its scores are divided by √d_out (√{d_out}), not √head_dim (√{D})",
            f"pass scale={d_out} ** -0.5",
        ),
        (1.0, f"its scores are not scaled, instead of divided by √head_dim (√{D})", "pass scale=1.0"),
        (1 / D, f"its scores are divided by head_dim ({D}), not by its root", f"pass scale=1 / {D}"),
    )
    for causal, (scale, why, remedy) in product((plan.causal, not plan.causal), scales):
        tried = _layer_out(replace(plan, causal=causal, scale=scale), twin, x)
        if not any(_close(tried, *answer) for answer in (answers if causal == plan.causal else answers[:1])):
            continue
        if causal != plan.causal:
            why = f"it {'hides' if causal else 'sees'} the future" + (f", and {why}" if why else "")
            remedy = f"leave causal out or pass causal={causal}" + (f", and {remedy}" if remedy else "")
        return ValueError(f"{told}The reason: {why}; {remedy} to take it over as it is, or correct the module")
    _, weights = build(replace(plan, causal=False), state_of(twin)).eval()(x, return_weights=True)
    values = layer.W_value(x).unflatten(-1, (-1, D)).transpose(1, 2)
    values = values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
    if _close(layer.out_proj((weights.tril() @ values).transpose(1, 2).flatten(2)), *answers[0]):
        return ValueError(
            f"{told}The reason: it hides the future after the softmax, so rows no longer sum to 1; put −∞ before it"
        )
    used = {
        key
        for stem in plan.stems.values()
        for key in (weight_name(state_of(twin), stem), f"{stem}.bias", f"{stem}_bias")
    }
    if rest := [name for name, _ in twin.named_parameters() if name not in used]:
        return ValueError(
            f"{told}It also has {', '.join(rest[:12])}, for which this layer has no place; "
            'if one of them is the output projection, pass names={"out_proj": …}'
        )
    return ValueError(f"{told}No known variant matches: look for positions, norms or a residual in its forward")
