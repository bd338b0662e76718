"""Layouts: weights are found under every usual name and in both orientations; a state dict may stand for its module.

What a module says about itself, and options that cannot be adopted.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from learners import (
    TRIL,
    Assignment,
    CausalAttention,
    Easy,
    Fast,
    Ladder,
    Named,
    SelfAttention,
    assert_same,
    gpt2,
    join,
    mix,
    random_x,
    split,
)
from regard.adoption.adopt import adopt
from regard.adoption.layouts import HEADS, find_dropout, find_number


def test_an_unknown_layout_lists_what_was_found_and_what_is_known():
    with pytest.raises(ValueError, match=r"parameters are weight, bias. Known are W_query.*qkv_proj.*names=\{"):
        adopt(nn.Linear(2, 3))
    with pytest.raises(ValueError, match=r"One is inside, at 0: adopt\(module.0\)"):
        adopt(nn.Sequential(Easy()))


@pytest.mark.parametrize(
    "names",
    [
        ("q_proj", "k_proj", "v_proj", "out_proj"),
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        ("to_q", "to_k", "to_v", "to_out"),
        ("query", "key", "value", "out_proj"),
        ("wq", "wk", "wv", "wo"),
        ("qkv", "proj"),
        ("in_proj", "out_proj"),
        ("c_attn", "c_proj"),
        ("to_qkv", "to_out"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("num_kv_heads", [3, 1])
def test_usual_names_are_known_and_narrow_keys_are_grouped(names, num_kv_heads):
    module = Named(names, num_kv_heads=num_kv_heads)
    layer = adopt(module)
    assert_same(module, layer, 12)
    assert layer.num_kv_heads == num_kv_heads


def test_an_output_with_its_own_dropout_is_looked_into():
    module = Named(("to_q", "to_k", "to_v", "to_out"), out=nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.5)))
    assert_same(module, adopt(module), 12)


def test_bare_parameters_are_read_as_x_times_weight():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.randn(5, 3)) for _ in range(3))

        def forward(self, x):
            return mix(x @ self.W_query, x @ self.W_key, x @ self.W_value)

    module = Bare()
    assert_same(module, adopt(module), 5)


@pytest.mark.parametrize("module, heads", [(Ladder(qkv_bias=True), 3), (CausalAttention(), 1)])
def test_a_state_dict_with_a_stored_mask_is_causal_and_bounded(module, heads):
    layer = adopt(module.state_dict(), num_heads=heads)
    assert (layer.causal, layer.context_length) == (True, 11)
    assert_same(module, layer, 5)
    assert all(p.requires_grad for p in layer.W_query.parameters())
    assert adopt(module.state_dict(), num_heads=heads, causal=False).causal is False


@pytest.mark.parametrize("kind", [Easy, Fast, Assignment])
def test_a_state_dict_of_a_known_layout_needs_no_names(kind):
    module = kind()
    assert_same(module, adopt(module.state_dict(), num_heads=2, causal=False), 10)


def test_a_state_dict_of_torch_multihead_attention_needs_no_names():
    module = nn.MultiheadAttention(10, 2, batch_first=True)
    layer, x = adopt(module.state_dict(), num_heads=2, causal=False), random_x(10, dtype=torch.float32)
    torch.testing.assert_close(layer(x), module(x, x, x)[0])


def test_a_state_dict_says_which_is_which_by_names():
    module = Named(("a", "b", "c", "d"), num_kv_heads=1, bias=True)
    state = {f"h.0.{name}": t for name, t in module.state_dict().items()}
    names = {"W_query": "h.0.a", "W_key": "h.0.b", "W_value": "h.0.c", "out_proj": "h.0.d.weight"}
    layer = adopt(state, names=names, num_heads=3, causal=False)
    assert layer.num_kv_heads == 1
    assert_same(module, layer, 12)


def test_a_gpt2_state_dict_is_read_in_its_own_orientation_with_its_stored_mask():
    module = gpt2("sdpa")
    state = {f"h.0.attn.{name}": t for name, t in module.state_dict().items()}
    names = {"qkv": "h.0.attn.c_attn", "out_proj": "h.0.attn.c_proj"}
    state["h.0.attn.bias"] = torch.ones(13, 13, dtype=torch.bool).tril().view(1, 1, 13, 13)
    layer = adopt(state, names=names, num_heads=3)
    assert (layer.causal, layer.context_length) == (True, 13)
    assert_same(module, layer, 15)


def test_square_weights_are_read_as_linear_unless_transposed_is_said():
    state = {name: torch.randn(8, 8) for name in ("wq", "wk", "wv", "wo")}
    layer = adopt(state, num_heads=2, causal=True)
    turned = adopt(state, num_heads=2, causal=True, transposed=True)
    assert layer.W_query.weight.equal(state["wq"])
    assert turned.W_query.weight.equal(state["wq"].T)
    assert turned.out_proj.weight.equal(state["wo"].T)


@pytest.mark.parametrize(
    "shapes",
    [
        {"wq": (5, 8), "wk": (5, 8), "wv": (5, 8), "wo": (8, 8)},  # d_out is out_proj's
        {"wq": (8, 8), "wk": (8, 4), "wv": (8, 4), "wo": (8, 8)},  # grouped: d_in is shared
        {"qkv": (8, 24), "proj": (8, 8)},  # three times as wide
    ],
)
def test_shapes_that_are_not_square_give_the_orientation(shapes):
    state = {name: torch.randn(shape) for name, shape in shapes.items()}
    other = {name: t.T for name, t in state.items()}
    a, b = (adopt(s, num_heads=2, causal=True) for s in (state, other))
    assert a.state_dict().keys() == b.state_dict().keys()
    for name, t in a.state_dict().items():
        assert t.equal(b.state_dict()[name])


def test_names_that_are_wrong_are_named():
    state = Easy().state_dict()
    with pytest.raises(ValueError, match="names has W_q; its keys are W_query, W_key, W_value or qkv, and out_proj"):
        adopt(state, names={"W_q": "q_linear"}, num_heads=2, causal=True)
    with pytest.raises(ValueError, match=r"asks for 'nowhere' \(qkv\), but the state dict has only q_linear.weight"):
        adopt(state, names={"qkv": "nowhere"}, num_heads=2, causal=True)
    with pytest.raises(ValueError, match="names gives W_query; it takes W_query, W_key and W_value together"):
        adopt(state, names={"W_query": "q_linear"}, num_heads=2, causal=True)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_and_training_mode_are_kept(dtype):
    module = Ladder().to(dtype).eval()
    layer = adopt(module)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    assert not layer.training
    assert adopt(module.train()).training
    assert layer.W_key.weight.equal(module.W_key.weight)


@pytest.mark.parametrize("head_by_head", [False, True])
def test_frozen_weights_stay_frozen_and_the_others_do_not(head_by_head):
    module = Fast(head_by_head=head_by_head)
    module.qkv_proj.weight.requires_grad_(False)
    with torch.no_grad():  # the caller's own mode must not freeze the rest
        layer = adopt(module)
    frozen = [name for name, p in layer.named_parameters() if not p.requires_grad]
    assert frozen == ["W_query.weight", "W_key.weight", "W_value.weight"]


def test_the_weights_are_copies():
    module = Ladder()
    layer = adopt(module)
    before = layer.out_proj.weight.clone()
    with torch.no_grad():
        module.out_proj.weight.zero_()
    assert layer.out_proj.weight.equal(before)


@pytest.mark.parametrize("heads", [3, 0])
def test_a_number_of_heads_that_cannot_be_is_refused(heads):
    with pytest.raises(ValueError, match=rf"num_heads \({heads}\)"):
        adopt(Easy().state_dict(), num_heads=heads, causal=True)


def test_weights_of_several_kinds_are_refused():
    module = Easy()
    module.q_linear.double()
    with pytest.raises(ValueError, match=r"several kinds \(torch.float32 on cpu, torch.float64 on cpu\)"):
        adopt(module)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_a_single_head_without_out_proj_gets_a_frozen_identity(qkv_bias):
    module = SelfAttention(qkv_bias=qkv_bias)
    layer = adopt(module)
    assert_same(module, layer, 5)
    assert (layer.causal, layer.num_heads, layer.context_length) == (False, 1, None)
    assert layer.out_proj.weight.equal(torch.eye(3))
    assert layer.out_proj.bias.equal(torch.zeros(3))
    assert not layer.out_proj.weight.requires_grad
    assert layer.W_query.weight.requires_grad


def test_a_projection_packed_head_by_head_is_put_in_order():
    module = Fast(d_model=12, num_heads=3, head_by_head=True)
    assert_same(module, adopt(module), 12)


def test_a_bias_that_only_some_projections_have_is_zero_and_frozen_elsewhere():
    module = Named(("q_proj", "k_proj", "v_proj", "out_proj"), bias=True)
    module.k_proj = nn.Linear(12, 12, bias=False)
    layer = adopt(module)
    assert_same(module, layer, 12)
    assert layer.W_key.bias.equal(torch.zeros(12))
    assert not layer.W_key.bias.requires_grad
    assert layer.W_value.bias.requires_grad


@pytest.mark.parametrize(
    "shapes, rule",
    [
        ({"wq": (8, 8), "wk": (8, 5), "wv": (8, 8), "wo": (8, 8)}, r"wk \(8, 5\).*read from one width, d_in"),
        ({"wq": (8, 8), "wk": (3, 8), "wv": (3, 8), "wo": (8, 8)}, r"wk \(3, 8\).*multiple of head_dim \(4\)"),
        ({"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (5, 8)}, r"wo \(5, 8\).*= \(8, 8\)"),
        ({"qkv": (23, 8), "wo": (8, 8)}, r"qkv \(23, 8\).*the rows of qkv \(23\)"),
        ({"qkv": (2, 3, 8), "wo": (8, 8)}, r"qkv is \(2, 3, 8\), torch.float32; adopt\(\) takes matrices"),
        ({"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wq.bias": (3,), "wo": (8, 8)}, r"wq.bias \(3\); a bias must be"),
    ],
)
def test_shapes_that_do_not_fit_are_listed_by_name(shapes, rule):
    with pytest.raises(ValueError, match=rule):
        adopt({name: torch.randn(shape) for name, shape in shapes.items()}, num_heads=2, causal=True, transposed=False)


def test_a_packed_bias_of_the_wrong_length_is_listed_by_name():
    state = {"qkv.weight": torch.randn(24, 8), "qkv.bias": torch.randn(23), "proj.weight": torch.randn(8, 8)}
    with pytest.raises(ValueError, match=r"qkv.bias \(23\); a bias must be as long as its projection is wide"):
        adopt(state, num_heads=2, causal=True, transposed=False)
