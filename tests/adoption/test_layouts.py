"""Layouts: every one is found, and gives the same numbers; a state dict may stand for its module."""

from __future__ import annotations

import copy

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
    join,
    mix,
    random_x,
    split,
)
from regard.adoption.adopt import adopt


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_the_documents_layer_is_taken_over_with_everything_it_knows(qkv_bias):
    module = Ladder(qkv_bias=qkv_bias)
    layer = adopt(module)
    assert_same(module, layer, 5)
    assert (layer.causal, layer.context_length, layer.dropout, layer.num_heads) == (True, 11, 0.1, 3)
    assert (layer.W_query.bias is not None) is qkv_bias
    assert "mask" not in layer.state_dict()


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


def test_a_causal_single_head_is_found_to_be_causal():
    module = CausalAttention()
    layer = adopt(module)
    assert_same(module, layer, 5)
    assert (layer.causal, layer.dropout, layer.context_length) == (True, 0.3, 11)


def test_a_context_of_one_token_is_enough():
    module = CausalAttention(context_length=1)
    layer = adopt(module)
    x = random_x(5, T=1, dtype=torch.float32)
    torch.testing.assert_close(layer.eval()(x), module.eval()(x))
    assert layer.context_length == 1


@pytest.mark.parametrize("kind", [Easy, Fast, Assignment])
def test_layers_without_a_mask_are_found_to_see_everything(kind):
    module = kind()
    layer = adopt(module)
    assert_same(module, layer, 10)
    assert not layer.causal
    assert layer.dropout == 0.0


@pytest.mark.parametrize("kind", [Fast, Assignment])
def test_a_layer_that_takes_a_mask_can_be_adopted_as_causal(kind):
    module = kind()
    assert_same(module, adopt(module, causal=True), 10, TRIL)


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


def test_bare_parameters_are_read_as_x_times_weight():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.randn(5, 3)) for _ in range(3))

        def forward(self, x):
            return mix(x @ self.W_query, x @ self.W_key, x @ self.W_value)

    module = Bare()
    assert_same(module, adopt(module), 5)


class Annotated(Easy):
    """forward(query, key, value, mask), with a mask of its own form."""

    def __init__(self, hides):
        super().__init__()
        self.hides = hides

    def forward(self, query, key, value, mask):
        q, k, v = (split(W(t), 2) for W, t in ((self.q_linear, query), (self.k_linear, key), (self.v_linear, value)))
        return self.out_proj(join(mix(q, k, v, None if mask is None else self.hides(mask))))


@pytest.mark.parametrize(
    "hides",
    [
        lambda mask: mask == 0,
        lambda mask: ~mask if mask.all() else mask | False,  # True hides, a float does not work; all True is no mask
        lambda mask: mask < 0,  # what is added to the scores
        lambda mask: mask.expand(2, 7, 7).unsqueeze(1) == 0 if mask.all() or mask.dim() == 3 else 1 / 0,  # (B, T, T)
    ],
    ids=["0 hides", "True hides", "added", "one mask a batch"],
)
def test_every_usual_form_of_mask_is_tried(hides):
    module = Annotated(hides)
    assert adopt(module).causal is False
    assert adopt(module, causal=True).causal is True


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_torch_multihead_attention_is_taken_over_batch_first(batch_first, bias):
    module = nn.MultiheadAttention(10, 2, dropout=0.2, bias=bias, batch_first=batch_first)
    if bias:  # they start at 0, where a swap could not be seen
        nn.init.normal_(module.in_proj_bias)
    layer = adopt(module).double().eval()
    assert (layer.causal, layer.dropout) == (False, 0.2)
    theirs, x = copy.deepcopy(module).double().eval(), random_x(10)
    given = x if batch_first else x.transpose(0, 1)
    out = theirs(given, given, given)[0]
    torch.testing.assert_close(layer(x), out if batch_first else out.transpose(0, 1))


def test_torch_multihead_attention_can_be_adopted_as_causal():
    module = nn.MultiheadAttention(10, 2, batch_first=True).double().eval()
    x = random_x(10)
    torch.testing.assert_close(adopt(module, causal=True)(x), module(x, x, x, attn_mask=TRIL == 0)[0])


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


def gpt2(implementation="eager", is_cross_attention=False, **options):
    modeling = pytest.importorskip("transformers.models.gpt2.modeling_gpt2")
    config = modeling.GPT2Config(n_embd=15, n_head=3, n_positions=13, attn_pdrop=0.2, resid_pdrop=0.4, **options)
    config._attn_implementation = implementation
    return modeling.GPT2Attention(config, layer_idx=4, is_cross_attention=is_cross_attention)


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


def test_gpt2_attention_for_another_kernel_is_checked_without_it_and_left_as_it_was():
    module = gpt2("flash_attention_2")
    adopt(module)
    assert module.config._attn_implementation == "flash_attention_2"


def test_gpt2_cross_attention_is_refused():
    with pytest.raises(ValueError, match="is_cross_attention=True"):
        adopt(gpt2(is_cross_attention=True))


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
def test_shapes_that_tell_the_orientation_are_believed(shapes):
    state = {name: torch.randn(shape) for name, shape in shapes.items()}
    other = {name: t.T for name, t in state.items()}
    a, b = (adopt(s, num_heads=2, causal=True) for s in (state, other))
    assert a.state_dict().keys() == b.state_dict().keys()
    for name, t in a.state_dict().items():
        assert t.equal(b.state_dict()[name])


def test_a_state_dict_must_say_heads_and_causality():
    state = Easy().state_dict()
    with pytest.raises(ValueError, match="the state dict does not say how many heads"):
        adopt(state, causal=True)
    with pytest.raises(ValueError, match=r"pass causal=True .* or causal=False"):
        adopt(state, num_heads=2)


def test_names_that_are_wrong_are_named():
    state = Easy().state_dict()
    with pytest.raises(ValueError, match="names has W_q; its keys are W_query, W_key, W_value or qkv, and out_proj"):
        adopt(state, names={"W_q": "q_linear"}, num_heads=2, causal=True)
    with pytest.raises(ValueError, match=r"asks for 'nowhere' \(qkv\), but the state dict has only q_linear.weight"):
        adopt(state, names={"qkv": "nowhere"}, num_heads=2, causal=True)
    with pytest.raises(ValueError, match="names gives W_query; it takes W_query, W_key and W_value together"):
        adopt(state, names={"W_query": "q_linear"}, num_heads=2, causal=True)


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
