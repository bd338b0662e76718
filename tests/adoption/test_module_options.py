"""What a module says about itself, and options that cannot be adopted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from learners import TRIL, Easy, assert_same, gpt2, join, mix, random_x, split
from regard.adoption.adopt import adopt
from regard.adoption.module_options import HEADS, find_dropout, find_number


def test_a_module_without_super_init_is_named():
    class Forgot(nn.Module):
        def __init__(self):
            self.num_heads = 2

    with pytest.raises(ValueError, match=r"Forgot.__init__ .* never called super\(\).__init__\(\)"):
        adopt(Forgot())


def test_a_missing_number_of_heads_is_asked_for():
    class Unsaid(Easy):
        def __init__(self):
            super().__init__()
            self.parts, self.num_heads = self.num_heads, None

        def forward(self, x):
            q, k, v = (split(W(x), self.parts) for W in (self.q_linear, self.k_linear, self.v_linear))
            return self.out_proj(join(mix(q, k, v)))

    module = Unsaid()
    with pytest.raises(ValueError, match=r"does not say how many heads.*pass it: adopt\(…, num_heads=12\)"):
        adopt(module)
    assert_same(module, adopt(module, num_heads=2), 10)


def test_a_module_on_the_meta_device_is_refused():
    with pytest.raises(ValueError, match="on the meta device, where weights have no values"):
        adopt(Easy().to("meta"))


@pytest.mark.parametrize(
    "option, words",
    [
        ({"add_bias_kv": True}, "add_bias_kv=True"),
        ({"add_zero_attn": True}, "add_zero_attn=True"),
        ({"kdim": 3}, r"kdim=3 and vdim=10.*project them to 10 first"),
        ({"vdim": 3}, r"kdim=10 and vdim=3.*project them to 10 first"),
    ],
)
def test_options_of_torch_that_the_layer_has_not_are_named(option, words):
    with pytest.raises(ValueError, match=words):
        adopt(nn.MultiheadAttention(10, 2, **option))


def test_gpt2_cross_attention_is_refused():
    with pytest.raises(ValueError, match="is_cross_attention=True"):
        adopt(gpt2(is_cross_attention=True))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "options, scale",
    [
        ({}, None),
        ({"scale_attn_weights": False}, 1.0),
        ({"scale_attn_by_inverse_layer_idx": True}, 5**-0.5 / 5),
        ({"reorder_and_upcast_attn": True}, None),
    ],
)
def test_gpt2_attention_is_taken_over(implementation, options, scale):
    module = gpt2(implementation, **options)
    layer = adopt(module).eval()
    assert (layer.causal, layer.context_length, layer.dropout, layer.scale) == (True, 13, 0.2, scale)
    x = random_x(15, dtype=torch.float32)
    hidden = torch.zeros(1, 1, 7, 7).masked_fill(TRIL == 0, torch.finfo(torch.float32).min)
    torch.testing.assert_close(layer(x), module.eval()(x, attention_mask=hidden)[0])


def test_numbers_are_read_from_the_module_before_its_config_and_never_from_flags():
    module, config = SimpleNamespace(n_head=True, heads=3), SimpleNamespace(num_heads=5)
    assert find_number([module, config], HEADS) == 3
    assert find_number([config], HEADS) == 5
    assert find_number([SimpleNamespace()], HEADS) is None


@pytest.mark.parametrize("dropout", [0.3, nn.Dropout(0.3)])
def test_dropout_is_read_as_a_number_or_a_module(dropout):
    assert find_dropout(SimpleNamespace(attn_dropout=dropout, dropout=0.9)) == 0.3
    assert find_dropout(SimpleNamespace(dropout=True)) == 0.0


def test_a_layer_that_needs_the_positions_of_its_model_is_refused():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = LlamaConfig(hidden_size=24, num_attention_heads=3, num_key_value_heads=3, vocab_size=7)
    with pytest.raises(ValueError, match=r"LlamaAttention rotates its queries .* regard\.GPT\.from_pretrained"):
        adopt(LlamaAttention(config, layer_idx=0))
