"""Small random models, most of them of transformers, and the weights of their calls by definition and by eager code."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import Textbook
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.intercept.intercept import intercept
from regard.ladder import multi_head

E = 12


def watched(model: nn.Module, *args: Any, tokens=None, padding=None, run=None, **kwargs: Any) -> tuple[Any, list[Any]]:
    """model(*args, **kwargs), and what was reported: (forward, layer, call)."""
    reports: list[tuple[int, int, WatchedCall]] = []
    with intercept(model, lambda *report: reports.append(report), tokens=tokens, padding=padding):
        out = (model if run is None else run)(*args, **kwargs)
    return out, reports


def calls(reports: list[Any]) -> list[WatchedCall]:
    return [call for _, _, call in reports]


def weights_of(call: WatchedCall) -> Tensor:
    """The weights of a call by their definition, in float64; 0 where a row sees nothing."""
    if isinstance(call.attention, OwnWeights):
        return call.attention.weights.double()
    _, H, T, S = call.sizes
    k = call.attention.k.double().repeat_interleave(H // call.attention.k.shape[1], 1)
    scores = call.attention.scale * (call.attention.q.double() @ k.mT)
    if call.attention.bias is not None:
        scores = scores + call.attention.bias.double()
    if call.attention.alibi is not None:
        distance = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs()
        scores = scores - call.attention.alibi.double()[:, None, None] * distance
    scores = scores.masked_fill(~call.attention.mask.dense(T, S), -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def lse_of(call: WatchedCall) -> Tensor:
    _, H, T, S = call.sizes
    k = call.attention.k.double().repeat_interleave(H // call.attention.k.shape[1], 1)
    scores = call.attention.scale * (call.attention.q.double() @ k.mT)
    return scores.masked_fill(~call.attention.mask.dense(T, S), -torch.inf).logsumexp(-1)


def assert_weights(call: WatchedCall, expected: Tensor) -> None:
    """Compare all weights, except those of padded queries."""
    weights, expected = weights_of(call), expected.double()
    assert weights.shape == expected.shape
    if call.origin.real is not None:
        rows = call.origin.real[:, None, :, None].expand_as(weights)
        weights, expected = weights * rows, expected * rows
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


def eager(model: nn.Module, **inputs: Any) -> Any:
    """The outputs of the model's own eager code, attentions among them."""
    double = copy.deepcopy(model)
    double.set_attn_implementation("eager")
    with torch.no_grad():
        return double(**inputs, output_attentions=True)


class Sdpa(nn.Module):
    """One call of scaled_dot_product_attention."""

    def forward(self, q, k, **options):
        return F.scaled_dot_product_attention(q, k, k, **options)


class Layers(nn.Module):
    """Two layers of any kind of attention."""

    def __init__(self, make, between=None):
        super().__init__()
        self.layers = nn.ModuleList([make(), make()])
        self.between = between

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if self.between is not None:
                self.between(x)
        return x


def textbook():
    return Textbook(E, E, 16, 0.0, 3)


def ladder():
    return multi_head.MultiHeadAttention(E, E, 16, 0.0, 3)


def random_x():
    return torch.randn(2, 7, E)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=3, vocab_size=53, n_positions=64, **ends)).eval()


def small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 53,
        "hidden_size": 32,
        "intermediate_size": 41,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**small(num_key_value_heads=2))).eval()


def qwen():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**small(num_key_value_heads=2, head_dim=8))).eval()


def mistral():
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**small(num_key_value_heads=2, sliding_window=3))).eval()


def sparse(**more: Any) -> dict[str, Any]:
    """The sizes of a DeepSeek V3.2 in which each query chooses three keys."""
    moe = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 13}
    widths = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8, "qk_nope_head_dim": 8}
    index = {"index_topk": 3, "index_head_dim": 16, "index_n_heads": 2, "num_key_value_heads": 4}
    return small(**moe, **widths, **index, first_k_dense_replace=2, **more)


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**small())).eval()


def vit():
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 32, "intermediate_size": 41, "num_hidden_layers": 2, "num_attention_heads": 4}
    return ViTModel(ViTConfig(**sizes, image_size=12, patch_size=4)).eval()


def bart():
    from transformers import BartConfig, BartModel

    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    ends = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": 2,
    }
    config = BartConfig(vocab_size=53, d_model=32, encoder_ffn_dim=41, decoder_ffn_dim=41, **sizes, **ends)
    return BartModel(config).eval()


def t5():
    from transformers import T5Config, T5Model

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 41, "num_layers": 2, "num_heads": 4}
    return T5Model(T5Config(vocab_size=53, **sizes, pad_token_id=0, decoder_start_token_id=0)).eval()


def ids(B: int = 2, T: int = 7) -> Tensor:
    return torch.randint(3, 53, (B, T))
