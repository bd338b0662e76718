"""Right layers of packages: PACKAGES makes each at a width and a number of heads, or skips what is missing."""

import importlib
import importlib.util
import sys
from functools import partial

import pytest
from torch import nn

import regard

TRANSFORMERS = {
    "gpt2": ("GPT2Attention", "GPT2Config", "n_embd", "n_head"),
    "bert": ("BertSelfAttention", "BertConfig", "hidden_size", "num_attention_heads"),
    "vit": ("ViTAttention", "ViTConfig", "hidden_size", "num_attention_heads"),
    "distilbert": ("DistilBertSelfAttention", "DistilBertConfig", "dim", "n_heads"),
    "clip": ("CLIPAttention", "CLIPTextConfig", "hidden_size", "num_attention_heads"),
    "roberta": ("RobertaSelfAttention", "RobertaConfig", "hidden_size", "num_attention_heads"),
    "electra": ("ElectraSelfAttention", "ElectraConfig", "hidden_size", "num_attention_heads"),
    "opt": ("OPTAttention", "OPTConfig", "hidden_size", "num_attention_heads"),
}


def of_transformers(family, kernel, width, heads):
    layer, config, *names = TRANSFORMERS[family]
    modeling = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    configuration = pytest.importorskip(f"transformers.models.{family}.configuration_{family}")
    settings = getattr(configuration, config)(**dict(zip(names, (width, heads), strict=True)))
    settings._attn_implementation = kernel
    return getattr(modeling, layer)(settings, **({"layer_idx": 0} if family in ("gpt2", "opt") else {}))


def of_x_transformers(options, width, heads):
    package = pytest.importorskip("x_transformers.x_transformers")
    return package.Attention(dim=width, dim_head=width // heads, heads=heads, **options)


def of_timm(fused, width, heads):
    layer = timm_attention().Attention(width, num_heads=heads, qkv_bias=fused)
    layer.fused_attn = fused
    return layer


def timm_attention():
    """timm's file with attention. The package itself asks for torchvision, which this file does not need."""
    if "timm.layers.attention" not in sys.modules:
        for name in ("timm", "timm.layers"):
            spec = importlib.util.find_spec(name)
            if spec is None:
                pytest.skip("timm is not installed")
            sys.modules.setdefault(name, importlib.util.module_from_spec(spec))  # its __init__.py is not run
    return importlib.import_module("timm.layers.attention")


PACKAGES = {
    "torch": lambda E, H: nn.MultiheadAttention(E, H),
    "torch, batch first": lambda E, H: nn.MultiheadAttention(E, H, batch_first=True, bias=False, dropout=0.2),
    "regard": lambda E, H: regard.MultiHeadAttention(13, E, 11, 0.1, H),
    "ladder, multi-head": lambda E, H: regard.ladder.MultiHeadAttention(13, E, 11, 0.1, H),
    "ladder, wrapper": lambda E, H: regard.ladder.MultiHeadAttentionWrapper(13, E // H, 11, 0.1, H),
    "ladder, causal": lambda E, H: regard.ladder.CausalAttention(13, E, 11, 0.1),
    "ladder, self-attention": lambda E, H: regard.ladder.SelfAttention(13, E),
    **{
        f"transformers, {family}, {kernel}": partial(of_transformers, family, kernel)
        for family in TRANSFORMERS
        for kernel in ("eager", "sdpa")
    },
    "x-transformers": partial(of_x_transformers, {}),
    "x-transformers, causal": partial(of_x_transformers, {"causal": True}),
    "x-transformers, flash": partial(of_x_transformers, {"causal": True, "flash": True}),
    "timm": partial(of_timm, False),
    "timm, fused": partial(of_timm, True),
}
