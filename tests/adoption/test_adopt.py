"""adopt(): what it keeps, how it checks itself, and why it refuses."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from learners import (
    TRIL,
    Assignment,
    Easy,
    Fast,
    Ladder,
    Named,
    assert_same,
    join,
    mix,
    random_x,
    split,
)
from regard.adoption.adopt import adopt
from regard.attention.layer import MultiHeadAttention


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
    assert [n for n, p in layer.named_parameters() if not p.requires_grad] == [
        "W_query.weight", "W_key.weight", "W_value.weight",
    ]  # fmt: skip


def test_the_weights_are_copies():
    module = Ladder()
    layer = adopt(module)
    before = layer.out_proj.weight.clone()
    with torch.no_grad():
        module.out_proj.weight.zero_()
    assert layer.out_proj.weight.equal(before)


def test_the_module_and_the_random_numbers_are_left_as_they_were():
    class Draws(Ladder):
        def forward(self, x):
            return super().forward(x) + 0 * torch.rand(1)

    module = Draws().train()
    calls = []
    module.register_forward_hook(lambda *_: calls.append(1))
    module(random_x(5, dtype=torch.float32)).sum().backward()
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    grads = {name: p.grad.clone() for name, p in module.named_parameters()}
    state = torch.get_rng_state()
    adopt(module)
    assert torch.get_rng_state().equal(state)
    assert module.training
    assert len(calls) == 1
    for name, p in module.named_parameters():
        assert p.equal(weights[name])
        assert p.dtype is torch.float32
        assert p.grad.equal(grads[name])


def test_a_module_that_keeps_its_last_weights_can_be_adopted_after_it_ran():
    class Keeps(Easy):
        def forward(self, x):
            self.seen = super().forward(x)
            return self.seen

    module = Keeps()
    module(random_x(10, dtype=torch.float32))
    assert adopt(module).num_heads == 2


def test_a_module_that_insists_on_float32_is_checked_in_float32():
    class Insists(Easy):
        def forward(self, x):
            return super().forward(x.float())

    assert adopt(Insists()).causal is False


def test_a_layer_of_ours_is_copied():
    layer = MultiHeadAttention(8, 8, 11, 0.1, 2, rotary=True, window=3).eval()
    found = adopt(layer)
    x = random_x(8, dtype=torch.float32)
    assert found is not layer
    torch.testing.assert_close(found(x), layer(x))


def test_weights_that_start_at_zero_do_not_hide_a_layer_that_sees_the_future():
    module = Easy()
    nn.init.zeros_(module.out_proj.weight)
    assert adopt(module).causal is False


def test_the_documents_wrong_scale_is_named_and_can_be_taken_over():
    module = Ladder(divide=math.sqrt(12))
    with pytest.raises(ValueError, match=r"divided by √d_out \(√12\), not √head_dim \(√4\); pass scale=12 \*\* -0.5"):
        adopt(module)
    layer = adopt(module, scale=12**-0.5)
    assert layer.scale == 12**-0.5
    assert_same(module, layer, 5)


def test_a_module_that_does_not_scale_is_named():
    with pytest.raises(ValueError, match=r"outputs differ by .* not scaled.*√head_dim \(√4\); pass scale=1.0"):
        adopt(Ladder(divide=1.0))


def test_a_module_that_forgot_the_root_is_named():
    with pytest.raises(ValueError, match=r"divided by head_dim \(4\), not by its root; pass scale=1 / 4"):
        adopt(Ladder(divide=4.0))


def test_a_scale_that_is_not_the_modules_is_named():
    with pytest.raises(ValueError, match=r"divided by √head_dim \(√4\); leave scale out"):
        adopt(Ladder(), scale=1.0)


def test_a_wrong_scale_under_a_mask_is_named_as_such():
    with pytest.raises(ValueError, match=r"The reason: its scores are divided by √d_out \(√10\), not √head_dim \(√5\)"):
        adopt(Fast(divide=math.sqrt(10)), causal=True)


def test_causal_against_the_modules_own_word_is_refused():
    with pytest.raises(ValueError, match="it hides the future; leave causal out or pass causal=True"):
        adopt(Ladder(), causal=False)
    with pytest.raises(ValueError, match="it sees the future; leave causal out or pass causal=False"):
        adopt(Easy(), causal=True)


def test_a_mask_after_the_softmax_is_named():
    class Late(Ladder):
        def forward(self, x):
            q, k, v = (split(W(x), self.num_heads) for W in (self.W_query, self.W_key, self.W_value))
            weights = (q @ k.mT / 2).softmax(-1).tril()
            return self.out_proj(join(weights @ v))

    with pytest.raises(ValueError, match="hides the future after the softmax, so rows no longer sum to 1"):
        adopt(Late())


def test_dropout_that_acts_in_eval_is_named():
    class Drops(Easy):
        def forward(self, x):
            return super().forward(F.dropout(x, 0.5))

    with pytest.raises(ValueError, match=r"in eval\(\) it answers differently"):
        adopt(Drops(), causal=False)


def test_parameters_without_a_place_are_listed():
    class Tempered(Easy):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return super().forward(x * self.temperature)

    with pytest.raises(ValueError, match="It also has temperature, for which this layer has no place"):
        adopt(Tempered())


def test_a_difference_as_small_as_rounding_in_float32_is_still_seen():
    class Nudged(Easy):
        def forward(self, x):
            return super().forward(x) * (1 + 1e-8)

    with pytest.raises(ValueError, match=r"Nudged computes something else: outputs differ by .*e-08"):
        adopt(Nudged())


def test_a_residual_inside_is_refused():
    class Residual(Easy):
        def forward(self, x):
            return x + super().forward(x)

    with pytest.raises(ValueError, match="No known variant matches: look for positions, norms or a residual"):
        adopt(Residual())


def test_an_output_projection_of_another_name_is_told_by_names():
    module = Named(("q_proj", "k_proj", "v_proj", "last"))
    with pytest.raises(ValueError, match=r"It also has last.weight.*names=\{\"out_proj\": …\}"):
        adopt(module)
    assert_same(module, adopt(module, names={"out_proj": "last"}), 12)


def test_a_module_that_does_not_run_is_told_its_own_error():
    class NoImport(Easy):
        def forward(self, x):
            return super().forward(x) + eval("F", {}).softmax(x)

    class NoName(Easy):
        def forward(self, x):
            return super().forward(x).view(batch_size, -1)

    class Fails(Easy):
        def forward(self, x):
            raise RuntimeError("out of luck\nand more")

    with pytest.raises(
        ValueError, match=r"NoImport itself failed on x of shape \(2, 7, 10\): NameError.*import torch.nn"
    ):
        adopt(NoImport())
    with pytest.raises(ValueError, match="'batch_size' is not defined; define batch_size in forward"):
        adopt(NoName())
    with pytest.raises(ValueError, match=r"RuntimeError: out of luck; make it run on torch.randn\(2, 7, 10\) first"):
        adopt(Fails())


def test_a_view_after_transpose_is_explained():
    class Views(Easy):
        def forward(self, x):
            return self.out_proj(split(self.q_linear(x), self.num_heads).view(*x.shape))

    with pytest.raises(ValueError, match=r"Views itself failed.*call .contiguous\(\) before .view\(\)"):
        adopt(Views())


def test_a_module_without_super_init_is_told_exactly_that():
    class Forgot(nn.Module):
        def __init__(self):
            self.num_heads = 2

    with pytest.raises(ValueError, match=r"Forgot.__init__ never called super\(\).__init__\(\)"):
        adopt(Forgot())


@pytest.mark.usefixtures("without_shape_checks")
def test_a_class_is_not_an_instance():
    with pytest.raises(ValueError, match=r"pass an instance: adopt\(Easy\(...\)\)"):
        adopt(Easy)
    with pytest.raises(ValueError, match="adopt\\(\\) takes a module or a state dict, not int"):
        adopt(7)


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


@pytest.mark.parametrize("heads", [3, 0])
def test_a_number_of_heads_that_cannot_be_is_refused(heads):
    with pytest.raises(ValueError, match=rf"num_heads \({heads}\)"):
        adopt(Easy().state_dict(), num_heads=heads, causal=True)


def test_an_unknown_layout_lists_what_was_found_and_what_is_known():
    with pytest.raises(ValueError, match=r"parameters are weight, bias. Known are W_query.*qkv_proj.*names=\{"):
        adopt(nn.Linear(2, 3))
    with pytest.raises(ValueError, match=r"One is inside, at 0: adopt\(module.0\)"):
        adopt(nn.Sequential(Easy()))


def test_a_module_on_the_meta_device_is_refused():
    with pytest.raises(ValueError, match="on the meta device, where weights have no values"):
        adopt(Easy().to("meta"))


def test_weights_of_several_kinds_are_refused():
    module = Easy()
    module.q_linear.double()
    with pytest.raises(ValueError, match=r"several kinds \(torch.float32 on cpu, torch.float64 on cpu\)"):
        adopt(module)


def test_half_precision_that_overflowed_at_minus_1e9_runs_after_adoption():
    module = Assignment().half().eval()
    x = random_x(10, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="without overflow"):
        module(x, TRIL)
    layer = adopt(module, causal=True)
    expected = copy.deepcopy(module).double()(x.double(), TRIL)[0]
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-2, atol=2e-3)
