"""Our GPT and transformers' GPT-2 with the same weights, for benchmarks of complete models."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard import Rotary
from regard.gpt import GPT, GPTConfig
from regard.gpt.checkpoint.weight_names import places_in_file

# Small enough for a run of a few seconds.
QUICK = GPTConfig(vocab_size=499, context_length=64, num_layers=2, d_model=64, num_heads=4)

# The sizes of a Llama with a billion parameters.
LLAMA = GPTConfig(
    vocab_size=128_256,
    context_length=2048,
    num_layers=16,
    d_model=2048,
    num_heads=32,
    num_kv_heads=8,
    d_ff=8192,
    rotary=Rotary(base=500_000.0),
    norm="rms",
    feed_forward="swiglu",
    qkv_bias=False,
    bias=False,
)


@torch.no_grad()
def twin(ours: GPT) -> Any:
    """transformers' GPT-2 with a copy of our weights. Built on the meta device, so that it is never initialised."""
    from transformers import GPT2Config, GPT2LMHeadModel

    c, weight = ours.config, ours.token_embedding.weight
    config = GPT2Config(
        vocab_size=c.vocab_size,
        n_positions=c.context_length,
        n_embd=c.d_model,
        n_layer=c.num_layers,
        n_head=c.num_heads,
        n_inner=c.inner,
        bos_token_id=None,
        eos_token_id=None,
        embd_pdrop=c.dropout,
        resid_pdrop=c.dropout,
        attn_pdrop=c.dropout,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        theirs = GPT2LMHeadModel(config).to(weight.dtype)
    theirs.to_empty(device=weight.device)
    theirs.tie_weights()
    theirs.loss_type = "ForCausalLM"  # its default, set to avoid a warning
    state = theirs.transformer.state_dict()
    for name, place in places_in_file(c, "gpt2").items():
        target, source = state[place.name], ours.get_parameter(name)
        target = target if place.part is None else target[..., slice(*place.part)]
        target.copy_(source.mT if place.transposed else source)
    return theirs.eval()


def weights_in_use(model: GPT) -> list[nn.Parameter]:
    """The weights that every token uses: all except embeddings, of which a token reads one row.

    >>> model = GPT("tiny")  # its head is the token embedding
    >>> sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in weights_in_use(model)) == 512 * 256
    True
    """
    looked_up = [model.position_embedding] + ([] if model.head is None else [model.token_embedding])
    skipped = {id(module.weight) for module in looked_up if module is not None}
    return [p for p in model.parameters() if id(p) not in skipped]
