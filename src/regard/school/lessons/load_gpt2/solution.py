"""GPT-2's weights in your own layer: the same logits to the last digit."""

from importlib import import_module
from pathlib import Path

import torch
import torch.nn.functional as F


def mine(name):  # your file for an exercise, as a module
    return import_module(min(Path(__file__).parent.glob(f"[0-9]*_{name}.py")).stem)


def names(n):
    return f"h.{n}.mlp.c_fc", f"h.{n}.mlp.c_proj"


@torch.no_grad()
def load_attention(layer, stored, n):
    weight, bias = (stored[f"h.{n}.attn.c_attn.{one}"] for one in ("weight", "bias"))
    parts = (layer.W_query, layer.W_key, layer.W_value)
    for part, matrix, shift in zip(parts, weight.chunk(3, dim=1), bias.chunk(3)):
        part.weight.copy_(matrix.T)
        part.bias.copy_(shift)
    layer.out_proj.weight.copy_(stored[f"h.{n}.attn.c_proj.weight"].T)
    layer.out_proj.bias.copy_(stored[f"h.{n}.attn.c_proj.bias"])


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
