"""The layer's weights: where they lie, how they are loaded, copied, hooked and replaced."""

import copy
import io
import pickle

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers import Textbook
from helpers import layer_by_hand as by_hand
from regard import MultiHeadAttention, causal

SIZES = {"d_in": 7, "d_out": 12, "context_length": 13, "dropout": 0.0, "num_heads": 3}
EXACT = {"rtol": 1e-9, "atol": 1e-11}


def new_layer(**options):
    return MultiHeadAttention(**SIZES | options).double()


def new_x(B=2, T=5):
    return torch.randn(B, T, 7, dtype=torch.float64)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_state_dicts_go_both_ways(qkv_bias):
    book, ours, x = Textbook(**SIZES, qkv_bias=qkv_bias).double(), new_layer(qkv_bias=qkv_bias), new_x()
    assert "mask" in book.state_dict()
    assert ours.load_state_dict(book.state_dict(), strict=True) == ([], [])
    torch.testing.assert_close(ours(x), book(x), **EXACT)
    other = Textbook(**SIZES, qkv_bias=qkv_bias).double()
    assert other.load_state_dict(ours.state_dict(), strict=False) == (["mask"], [])
    torch.testing.assert_close(other(x), ours(x), **EXACT)


def test_a_textbook_inside_a_model_loads_strictly():
    book, ours = (
        nn.ModuleDict({"att": layer, "ff": nn.Linear(3, 5)})
        for layer in (Textbook(**SIZES), MultiHeadAttention(**SIZES))
    )
    state = book.state_dict()
    assert ours.load_state_dict(state, strict=True) == ([], [])
    assert "att.mask" in state


def test_a_causal_mask_is_not_loaded_into_a_layer_that_sees_the_future():
    with pytest.raises(
        RuntimeError, match=r"mask is a causal mask, but this layer was built with causal=False; use causal=True"
    ):
        new_layer(causal=False).load_state_dict(Textbook(**SIZES).state_dict())


def test_nothing_in_memory_grows_with_the_context():
    small, large = (MultiHeadAttention(**SIZES | {"context_length": n}, rotary=True) for n in (2, 1 << 40))
    assert list(small.buffers()) == list(large.buffers()) == []


RENEWED = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "to": lambda layer: layer.to(torch.float32).to(torch.float64),
    "loaded": lambda layer: renewed(layer, assign=False),
    "assigned": lambda layer: renewed(layer, assign=True),
    "from meta": lambda layer: from_meta(layer),
    "saved": lambda layer: saved(layer),
}


def renewed(layer, assign):
    other = new_layer(qkv_bias=True)
    other.load_state_dict({name: t.clone() for name, t in layer.state_dict().items()}, assign=assign)
    return other


def from_meta(layer):
    with torch.device("meta"):
        other = new_layer(qkv_bias=True)
    assert all(p.is_meta for p in other.parameters())
    other.to_empty(device="cpu").load_state_dict(layer.state_dict())
    return other


def saved(layer):
    file, other = io.BytesIO(), new_layer(qkv_bias=True)
    torch.save(layer.state_dict(), file)
    other.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    return other


@pytest.mark.parametrize("way", RENEWED)
def test_a_renewed_layer_is_the_same_layer_with_weights_of_its_own(way):
    layer, x = new_layer(qkv_bias=True), new_x()
    layer.to(torch.float32).to(torch.float64)  # so that nothing is lost on the way through float32
    wanted = layer(x)
    other = RENEWED[way](layer)
    torch.testing.assert_close(other(x), wanted, **EXACT)
    torch.testing.assert_close(other(x), by_hand(other, x, mask=causal())[0], **EXACT)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    if other is not layer:
        torch.testing.assert_close(layer(x), wanted, **EXACT)
    torch.testing.assert_close(other(x), by_hand(other, x, mask=causal())[0], **EXACT)


def test_safetensors_writes_the_layer_and_reads_it_back(tmp_path):
    layer, other, x = new_layer(), new_layer(), new_x()
    safetensors.torch.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "layer.safetensors"))
    torch.testing.assert_close(other(x), layer(x), **EXACT)


def test_safetensors_save_model_writes_the_layer_too(tmp_path):
    layer, other, x = new_layer(), new_layer(), new_x()
    safetensors.torch.save_model(layer, str(tmp_path / "layer.safetensors"))
    safetensors.torch.load_model(other, tmp_path / "layer.safetensors")
    torch.testing.assert_close(other(x), layer(x), **EXACT)


@pytest.mark.parametrize("name", ["W_query", "W_key", "W_value", "out_proj"])
def test_hooks_on_a_projection_fire_and_may_change_it(name):
    layer, x, seen = new_layer(), new_x(), []
    handle = getattr(layer, name).register_forward_hook(lambda module, args, out: seen.append(out) or 2 * out)
    found = layer(x)
    assert len(seen) == 1
    handle.remove()
    with torch.no_grad():
        getattr(layer, name).weight.mul_(2)
        if name == "out_proj":
            layer.out_proj.bias.mul_(2)
    torch.testing.assert_close(found, layer(x), **EXACT)


def test_backward_hooks_on_a_projection_fire():
    layer, seen = new_layer(), []
    layer.W_value.register_full_backward_hook(lambda module, into, out: seen.append(out[0].shape))
    layer(new_x().requires_grad_()).sum().backward()
    assert seen == [(2, 5, 12)]


def test_hooks_on_all_modules_see_the_projections():
    layer, seen = new_layer(), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: seen.append(module))
    try:
        layer(new_x())
    finally:
        handle.remove()
    assert seen == [layer.W_query, layer.W_key, layer.W_value, layer.out_proj, layer]


class LowRank(nn.Module):
    """A projection with a small learned addition, as LoRA has it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.down, self.up = (
            base,
            nn.Linear(base.in_features, 2, False),
            nn.Linear(2, base.out_features, False),
        )

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("name", ["W_query", "W_key", "W_value"])
def test_an_adapter_in_the_place_of_a_projection_is_honoured(name):
    layer, x = new_layer(), new_x()
    before = layer(x)
    setattr(layer, name, LowRank(getattr(layer, name)).double())
    torch.testing.assert_close(layer(x), by_hand(layer, x, mask=causal())[0], **EXACT)
    assert not torch.allclose(layer(x), before)


@pytest.mark.parametrize("name", ["W_query", "W_value"])
def test_a_forward_put_in_the_place_of_a_projections_own_is_honoured(name):
    layer, x = new_layer(), new_x()
    projection = getattr(layer, name)
    projection.forward = lambda x: 3 * F.linear(x, projection.weight)
    torch.testing.assert_close(layer(x), by_hand(layer, x, mask=causal())[0], **EXACT)


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("name", ["W_query", "W_value"])
def test_a_projection_with_another_bias_is_honoured(name, qkv_bias):
    layer, x = new_layer(qkv_bias=qkv_bias), new_x()
    setattr(layer, name, nn.Linear(7, 12, bias=not qkv_bias))
    layer.double()
    torch.testing.assert_close(layer(x), by_hand(layer, x, mask=causal())[0], **EXACT)


@pytest.mark.parametrize("name", ["W_query", "W_key", "W_value"])
def test_weights_moved_apart_still_count(name):
    layer, x = new_layer(), new_x()
    getattr(layer, name).weight = nn.Parameter(torch.randn(12, 7, dtype=torch.float64))
    torch.testing.assert_close(layer(x), by_hand(layer, x, mask=causal())[0], **EXACT)
    layer(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_a_weight_that_is_a_plain_tensor_counts():
    layer, x = new_layer(), new_x()
    del layer.W_query.weight
    layer.W_query.weight = torch.randn(12, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(x), by_hand(layer, x, mask=causal())[0], **EXACT)


def test_tied_weights_stay_tied():
    layer, x = new_layer(), new_x()
    layer.W_key.weight = layer.W_query.weight
    layer.double()
    assert layer.W_key.weight is layer.W_query.weight
    torch.testing.assert_close(layer(x), by_hand(layer, x, mask=causal())[0], **EXACT)


def test_frozen_projections_get_no_gradient_and_the_others_do():
    layer = new_layer(qkv_bias=True)
    layer.W_key.requires_grad_(False)
    layer(new_x()).sum().backward()
    assert {name for name, p in layer.named_parameters() if p.grad is None} == {"W_key.weight", "W_key.bias"}


@pytest.mark.parametrize("name", ["W_query", "W_key", "W_value"])
def test_a_weight_changed_between_forward_and_backward_is_noticed(name):
    layer = new_layer()
    out = layer(new_x().requires_grad_())
    with torch.no_grad():
        getattr(layer, name).weight.mul_(2)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation|modified inplace"):
        out.sum().backward()


def test_memory_stays_shared_between_processes():
    layer = new_layer()
    layer.load_state_dict({name: t.clone() for name, t in layer.state_dict().items()}, assign=True)
    layer.share_memory()
    assert all(p.is_shared() for p in layer.parameters())


def test_gradients_of_gradients_are_right():
    layer, x = new_layer(), new_x(B=1, T=3)

    def twice(out):
        first = torch.autograd.grad(out.sin().sum(), list(layer.parameters()), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), list(layer.parameters()))

    with sdpa_kernel(SDPBackend.MATH):  # PyTorch's fused kernel on the CPU has no second derivative
        found = twice(layer(x))
    torch.testing.assert_close(found, twice(by_hand(layer, x, mask=causal())[0]), **EXACT)


def test_functional_call_uses_the_parameters_it_is_given():
    layer, other, x = new_layer(), new_layer(), new_x()
    given = {name: p.detach().clone() for name, p in other.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(layer, given, (x,)), other(x), **EXACT)
    only_one = {"W_value.weight": given["W_value.weight"]}
    found = torch.func.functional_call(layer, only_one, (x,))
    layer.load_state_dict(only_one, strict=False)
    torch.testing.assert_close(found, layer(x), **EXACT)


def test_torch_func_gives_the_gradient_of_the_input():
    layer, x = new_layer(), new_x().requires_grad_()
    wanted = torch.autograd.grad(layer(x).sin().sum(), x)[0]
    torch.testing.assert_close(torch.func.grad(lambda x: layer(x).sin().sum())(x.detach()), wanted, **EXACT)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_torch_func_gives_a_gradient_for_each_text():
    layer, x = new_layer(), new_x(B=3)
    given = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(given, text):
        return torch.func.functional_call(layer, given, (text[None],)).sin().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(given, x)
    wanted = [torch.func.grad(loss)(given, text) for text in x]
    torch.testing.assert_close(found, {name: torch.stack([g[name] for g in wanted]) for name in given}, **EXACT)


def test_moving_nowhere_moves_nothing():
    layer = MultiHeadAttention(6, 6, 8, 0.0, 2, qkv_bias=True)
    before = {name: p.data_ptr() for name, p in layer.named_parameters()}
    layer.to("cpu").float()
    assert {name: p.data_ptr() for name, p in layer.named_parameters()} == before


def test_assigned_weights_are_used_as_they_are():
    layer, other = (MultiHeadAttention(6, 6, 8, 0.0, 2) for _ in range(2))
    given = {name: t.clone() for name, t in other.state_dict().items()}
    layer.load_state_dict(given, assign=True)
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(layer(x), other(x))
    assert layer.W_key.weight.data_ptr() == given["W_key.weight"].data_ptr()


def test_every_parameter_has_a_storage_of_its_own():
    layer = MultiHeadAttention(6, 6, 8, 0.0, 2)
    sizes = {name: (p.untyped_storage().nbytes(), p.nbytes) for name, p in layer.named_parameters()}
    assert all(held == used for held, used in sizes.values()), sizes


def test_a_stored_mask_that_is_not_causal_is_refused():
    layer = MultiHeadAttention(6, 6, 8, 0.0, 2)
    with pytest.raises(RuntimeError, match=r"mask hides something else than the future"):
        layer.load_state_dict({**layer.state_dict(), "mask": torch.zeros(8, 8)})


def test_positions_without_rotary_are_refused():
    with pytest.raises(ValueError, match=r"positions are for rotary, and this layer has none"):
        MultiHeadAttention(6, 6, 8, 0.0, 2)(torch.randn(1, 5, 6), positions=torch.arange(5))
