"""adopt: regard's layer with the weights of an attention module that somebody else wrote.

Where the weights are is read from their names (layouts.py). Whether the two then compute the same is not assumed but
tried (trial.py): both run on random input, with the weights as they are and with random ones.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from regard.adoption import layouts
from regard.adoption.drop_in import DropIn
from regard.adoption.layouts import Plan, build_layer, find_projections, state_of
from regard.adoption.reasons import explain_difference
from regard.adoption.trial import Trial, copy_for_trial, run_module
from regard.attention.layer import MultiHeadAttention
from regard.support.vocabulary import CONTEXT


@overload
def adopt(
    module: nn.Module | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    causal: bool | None = None,
    context_length: int | None = None,
    scale: float | None = None,
    names: Mapping[str, str] | None = None,
    transposed: bool | None = None,
    drop_in: Literal[True],
) -> DropIn: ...
@overload
def adopt(
    module: nn.Module | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    causal: bool | None = None,
    context_length: int | None = None,
    scale: float | None = None,
    names: Mapping[str, str] | None = None,
    transposed: bool | None = None,
) -> MultiHeadAttention: ...
def adopt(
    module: nn.Module | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    causal: bool | None = None,
    context_length: int | None = None,
    scale: float | None = None,
    names: Mapping[str, str] | None = None,
    transposed: bool | None = None,
    drop_in: bool = False,
) -> MultiHeadAttention | DropIn:
    """Build regard's layer so that it computes what an attention module of yours computes, with a copy of its weights.

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

    A copy of the module is run beside the layer in float64; if they differ, a ValueError says by how much and why.

    Options, for what cannot be found in the module:
        num_heads: where no attribute of the module gives it.
        causal: hide the future; unless given, it is found by trying. A module that takes a mask can be adopted
            with causal=True, and is then tried with a causal mask.
        context_length: the longest sequence; unless given, the module's own, else without limit.
        scale: what scores are multiplied by, where it is not 1/√head_dim.
        names: which weight is which, for W_query, W_key, W_value or qkv (the three packed in this order), out_proj.
        transposed: weights are (in, out), as for x @ weight; else (out, in), as in nn.Linear. Needed only where
            neither type nor shape decides it.
        drop_in: of a torch.nn.MultiheadAttention, a layer that is called like it: out, weights = layer(x, x, x), with
            its masks (True hides), its batch_first and its options.

    A state dict may stand for the module. It needs num_heads, and causal unless a causal mask is stored in it.
    With nothing to run, only shapes are checked, square weights are read as nn.Linear's, and dropout is 0.

    >>> state = {f"attn.{n}.weight": torch.randn(8, 8) for n in "qkvo"}
    >>> names = {"W_query": "attn.q", "W_key": "attn.k", "W_value": "attn.v", "out_proj": "attn.o"}
    >>> adopt(state, names=names, num_heads=2, causal=True).W_key.weight.equal(state["attn.k.weight"])
    True
    """
    if drop_in:
        if not isinstance(module, nn.MultiheadAttention):
            rule = "drop_in=True makes a layer that is called like torch.nn.MultiheadAttention, and takes one"
            raise ValueError(f"{rule}, not {type(module).__name__}; leave it out, and call layer(x)")
        options: dict[str, Any] = {"num_heads": num_heads, "causal": causal, "context_length": context_length}
        options |= {"scale": scale, "names": names, "transposed": transposed}
        return DropIn(adopt(module, **options), module.batch_first).train(module.training)
    if isinstance(module, MultiHeadAttention):
        return copy.deepcopy(module)
    state, who, owners = _read(module)
    stems = layouts.find_weights(state, names or {}, who)
    limit = layouts.find_number(owners, CONTEXT) or layouts.stored_mask(state, stems)
    if num_heads is None:
        num_heads = layouts.find_number(owners, layouts.HEADS) or layouts.default_heads(stems, who)
    plan = Plan(
        who=who,
        stems=stems,
        transposed=layouts.orientation(state, stems, module, transposed),
        num_heads=num_heads,
        causal=causal,
        context_length=limit if context_length is None else context_length,
        scale=scale if scale is not None else layouts.gpt2_scale(module),
        dropout=layouts.find_dropout(module),
    )
    if isinstance(module, nn.Module):
        plan = _verified(plan, module, min(7, limit or 7, context_length or 7))
        return build_layer(plan, state).train(module.training)
    if causal is None and layouts.stored_mask(state, stems) is None:
        remedy = "pass causal=True (GPT and other decoders) or causal=False (encoders)"
        raise ValueError(f"a state dict does not say whether its layer hides the future; {remedy}")
    return build_layer(replace(plan, causal=causal is not False), state)


def _read(module: nn.Module | Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str, list[Any]]:
    """The weights, what messages call the module, and the objects whose attributes describe it."""
    if isinstance(module, type):
        remedy = f"pass an instance: adopt({module.__name__}(...))"
        raise ValueError(f"adopt() takes over weights, and a class has none; {remedy}")
    if isinstance(module, nn.Module):
        layouts.refuse_foreign_options(module)
        config = getattr(module, "config", None)
        return state_of(module), type(module).__name__, [module] if config is None else [module, config]
    if isinstance(module, Mapping):
        # Aliases that require gradients: what is adopted from plain tensors is there to be trained.
        tensors = {name: t.detach() for name, t in module.items() if isinstance(t, Tensor)}
        return {n: t.requires_grad_(t.is_floating_point()) for n, t in tensors.items()}, "the state dict", []
    remedy = (
        "; of a file, pass safetensors.torch.load_file(…), or torch.load(…)" if isinstance(module, str | Path) else ""
    )
    raise ValueError(f"adopt() takes a module or a state dict, not {type(module).__name__}{remedy}")


def _verified(plan: Plan, module: nn.Module, T: int) -> Plan:
    """Run module and layer on random input; return the plan completed by what that showed, or raise the difference."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        generator = torch.Generator("cpu")
        actual, x = _first_run(plan, module, T, generator)
        # Weights that start at 0 (often out_proj and biases) would hide every difference: random ones are tried too.
        randomised = copy_for_trial(actual, x.dtype)
        for p in randomised.parameters():
            p.normal_(std=max(1, *p.shape) ** -0.5 if p.dim() else 1.0, generator=generator)
        if plan.causal is None:
            may_hide = not isinstance(module, nn.MultiheadAttention)
            causal = may_hide and (layouts.is_gpt2(module) or Trial(plan, randomised, x).hides_the_future())
            plan = replace(plan, causal=causal)
        for candidate in (plan, replace(plan, head_by_head=True)) if "qkv" in plan.stems else (plan,):
            if Trial(candidate, randomised, x).agrees() and Trial(candidate, actual, x).agrees():
                return candidate
        different = Trial(plan, randomised, x)
        raise explain_difference(Trial(plan, actual, x) if different.agrees() else different)


def _first_run(plan: Plan, module: nn.Module, T: int, generator: torch.Generator) -> tuple[nn.Module, Tensor]:
    """A copy of the module that runs, and its input: in float64, or in float32 where the module insists on it."""
    for dtype in (torch.float64, torch.float32):
        generator.manual_seed(T)
        twin = copy_for_trial(module, dtype)
        d_in = find_projections(plan, state_of(twin))["W_query"][0].shape[1]
        x = torch.randn(2, T, d_in, dtype=dtype, generator=generator, device="cpu")
        with suppress(ValueError):  # a module that runs in neither dtype says why in its trial
            run_module(twin, x)
            break
    return twin, x
