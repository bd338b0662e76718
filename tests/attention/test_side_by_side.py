"""Three weights in one room: autograd, optimizers and copies see three parameters, whichever way the product goes."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from regard import MultiHeadAttention

CHANGED = r"modified by an inplace operation"


def new_layer(**options) -> MultiHeadAttention:
    told = {"context_length": 13, "dropout": 0.0, "num_heads": 3} | options
    return MultiHeadAttention(7, 12, **told).double()


def three(layer):
    return [layer.W_query.weight, layer.W_key.weight, layer.W_value.weight]


def gradients(layer, x):
    out = layer(x).square().sum()
    return torch.autograd.grad(out, [x, *layer.parameters()])


def plain_gradients(layer, x):
    """The same by three products: a listener on a projection makes it be called."""
    handle = layer.W_query.register_forward_hook(lambda *_: None)
    found = gradients(layer, x)
    handle.remove()
    return found


def new_x(*shape) -> torch.Tensor:
    return torch.randn(*(shape or (2, 5, 7)), dtype=torch.float64, requires_grad=True)


def assert_same(found, right, layer):
    for name, a, b in zip(["x", *(n for n, _ in layer.named_parameters())], found, right, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


def in_a_file(layer):
    return pickle.loads(pickle.dumps(layer))


def from_meta(layer):
    with torch.device("meta"):
        found = MultiHeadAttention(7, 12, context_length=13, dropout=0.0, num_heads=3)
    found = found.double().to_empty(device="cpu")
    found.load_state_dict(layer.state_dict())
    return found


def assigned(layer):
    found = new_layer()
    found.load_state_dict({n: t.clone() for n, t in layer.state_dict().items()}, assign=True)
    return found


WAYS = {
    "new": lambda layer: layer,
    "there and back": lambda layer: layer.float().double(),
    "from meta": from_meta,
    "loaded": lambda layer: layer.load_state_dict(copy.deepcopy(layer).state_dict()) and layer,
    "deepcopy": copy.deepcopy,
    "pickle": in_a_file,
    "assigned": assigned,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True}, {"num_kv_heads": 1}], ids=str)
def test_gradients_are_those_of_three_products(way, options):
    if options and way in ("from meta", "assigned"):
        pytest.skip("made with the plain options")
    layer = WAYS[way](new_layer(**options))
    assert layer.joined() is not None
    for T in (5, 13):
        x = new_x(2, T, 7)
        assert_same(gradients(layer, x), plain_gradients(layer, x), layer)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("changed", [0, 1, 2])
def test_a_weight_changed_between_forward_and_backward_is_noticed(way, changed):
    layer = WAYS[way](new_layer())
    out = layer(new_x()).sum()
    with torch.no_grad():
        three(layer)[changed].mul_(1.5)
    with pytest.raises(RuntimeError, match=CHANGED):
        out.backward()
    layer(new_x()).sum().backward()  # and the next step is right again


@pytest.mark.parametrize("frozen", [(0,), (1, 2), (0, 1, 2)], ids=str)
def test_frozen_weights_get_no_gradient_and_thawed_ones_do(frozen):
    layer, x = new_layer(), new_x()
    for i in frozen:
        three(layer)[i].requires_grad_(False)
    layer(x).sum().backward()
    for i, p in enumerate(three(layer)):
        assert (p.grad is None) == (i in frozen)
    for p in three(layer):
        p.requires_grad_(True)
    assert_same(gradients(layer, x), plain_gradients(layer, x), layer)


def test_a_new_parameter_in_the_same_memory_gets_its_own_gradient():
    layer, x = new_layer(), new_x()
    old = layer.W_key.weight
    layer.W_key.weight = nn.Parameter(old.data)
    layer(x).sum().backward()
    assert old.grad is None
    right = torch.autograd.grad(plain := layer(x).sum(), layer.W_key.weight)[0]
    assert plain.requires_grad
    torch.testing.assert_close(layer.W_key.weight.grad, right)


def test_training_moves_each_weight_as_three_products_would():
    layer, plain = new_layer(qkv_bias=True), new_layer(qkv_bias=True)
    plain.load_state_dict(layer.state_dict())
    plain.W_value.register_forward_hook(lambda *_: None)
    ours, theirs = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (layer, plain))
    for _ in range(5):
        x = new_x()
        for m, o in ((layer, ours), (plain, theirs)):
            o.zero_grad()
            (m(x).square().sum() / 2).backward()
            m(x).sum().backward()  # gradients add up
            o.step()
    for a, b in zip(layer.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_hooks_on_parameters_see_their_own_gradient():
    layer, x, seen = new_layer(), new_x(), {}
    for name, p in layer.named_parameters():
        p.register_hook(lambda grad, name=name: seen.__setitem__(name, grad.clone()))
        p.register_post_accumulate_grad_hook(lambda p, name=name: seen.__setitem__(name + " after", p.grad.clone()))
    right = dict(zip(["x", *(n for n, _ in layer.named_parameters())], plain_gradients(layer, x), strict=True))
    seen.clear()
    layer(x).square().sum().backward()
    for name, _ in layer.named_parameters():
        torch.testing.assert_close(seen[name], right[name])
        torch.testing.assert_close(seen[name + " after"], right[name])


def test_second_derivatives_go_through():
    layer = new_layer(qkv_bias=True)

    def run(x, *weights):
        return layer.as_one(x).square()  # fused attention has no second derivative

    x = new_x(1, 3, 7)
    assert torch.autograd.gradcheck(run, (x, *three(layer)))
    assert torch.autograd.gradgradcheck(run, (x, *three(layer)))


def test_laying_again_what_lies_right_disturbs_no_step_under_way():
    layer, x = new_layer(qkv_bias=True), new_x()
    right = torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
    out = layer(x).sum()
    layer.to(torch.float64)
    layer.lay_side_by_side()
    assert_same(torch.autograd.grad(out, [x, *layer.parameters()]), right, layer)


@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_what_moved_out_is_laid_again_and_the_other_stays(kind):
    layer, x = new_layer(qkv_bias=True), new_x()
    rooms = dict(layer._rooms)
    moved = getattr(layer.W_query, kind)
    moved.data = moved.data.clone()
    layer.lay_side_by_side()
    assert {name for name, room in layer._rooms.items() if room is not rooms[name]} == {kind}
    assert layer.joined() is not None
    assert_same(gradients(layer, x), plain_gradients(layer, x), layer)


def test_parameters_that_torch_swaps_can_be_swapped():
    layer, x = new_layer(), new_x()
    layer(x).sum().backward()
    layer.zero_grad()
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.float().double()
        layer.load_state_dict(new_layer().state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert_same(gradients(layer, x), plain_gradients(layer, x), layer)


def test_nothing_is_held_twice_and_a_copy_of_a_part_is_saved_as_a_part():
    layer = new_layer()
    layer(new_x()).sum().backward()
    file = io.BytesIO()
    torch.save(layer.W_query.weight, file)
    assert file.tell() < 3000  # the room would take 3,600
    assert len({p.untyped_storage().data_ptr() for p in three(layer)}) == 3
    assert layer.W_query.weight.data_ptr() == layer._rooms["weight"].data_ptr()


def test_no_gradients_wanted_none_recorded():
    layer, x = new_layer(), new_x().detach()
    with torch.no_grad():
        assert not layer(x).requires_grad
        right = layer(x)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), right)
    for p in layer.parameters():
        p.requires_grad_(False)
    assert not layer(x).requires_grad
