"""GPT-2's weights in your own layer: the same logits to the last digit.

A file of GPT-2 is a dictionary of tensors. For block 0 of width E it has

    wte.weight (V, E)   wpe.weight (C, E)     tokens and positions
    h.0.ln_1.weight, h.0.ln_1.bias   (E,)     norm_1: scale and shift
    h.0.attn.c_attn.weight  (E, 3E)           W_query, W_key, W_value beside
    h.0.attn.c_attn.bias    (3E,)             one another; x @ weight + bias
    h.0.attn.c_proj.weight, .bias             out_proj
    h.0.ln_2.…   h.0.mlp.c_fc.…   h.0.mlp.c_proj.…        norm_2, up, down
    ln_f.weight, ln_f.bias                    the last norm

All matrices are for x @ weight; nn.Linear computes x @ weight.T, so it wants
them turned. Write `load_attention`, which fills your layer of whole_layer
(made with qkv_bias=True) with the tensors of a block, and `names`: what the
last two matrices of the feed-forward are called for block number n.
"""

from importlib import import_module
from pathlib import Path

import torch
import torch.nn.functional as F


def mine(name):  # your file for an exercise, as a module
    return import_module(min(Path(__file__).parent.glob(f"[0-9]*_{name}.py")).stem)


def names(n):
    return ...  # two, such as "h.0.attn.c_proj" for n = 0


@torch.no_grad()
def load_attention(layer, stored, n):
    ...  # nothing is returned: weight.copy_(…)


def gpt2(stored, ids, heads):
    """The logits of the model in a file. (given)"""
    C, E = stored["wpe.weight"].shape
    x = stored["wte.weight"][ids] + stored["wpe.weight"][: ids.shape[1]]
    for n in range(sum(name.endswith("ln_1.weight") for name in stored)):
        layer = mine("whole_layer").MultiHeadAttention(E, E, C, 0.0, heads, qkv_bias=True)
        load_attention(layer, stored, n)
        x = x + layer(norm(x, stored, f"h.{n}.ln_1"))
        up, down = names(n)
        inner = linear(norm(x, stored, f"h.{n}.ln_2"), stored, up)
        x = x + linear(F.gelu(inner, approximate="tanh"), stored, down)
    return norm(x, stored, "ln_f") @ stored["wte.weight"].T


def norm(x, stored, name):
    return mine("layer_norm").layer_norm(x, stored[f"{name}.weight"], stored[f"{name}.bias"])


def linear(x, stored, name):
    return x @ stored[f"{name}.weight"] + stored[f"{name}.bias"]
