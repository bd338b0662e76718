"""A module run beside the layer: on a copy, in every usual form, with its own errors explained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from learners import Assignment, Easy, Ladder, gpt2, join, mix, random_x, split
from regard.adoption.adopt import adopt
from regard.adoption.trial import Answer, run_module


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


def test_weights_that_start_at_zero_do_not_hide_a_layer_that_sees_the_future():
    module = Easy()
    nn.init.zeros_(module.out_proj.weight)
    assert adopt(module).causal is False


def test_a_module_that_does_not_run_shows_its_own_error():
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


def test_gpt2_attention_for_another_kernel_is_checked_without_it_and_left_as_it_was():
    module = gpt2("flash_attention_2")
    adopt(module)
    assert module.config._attn_implementation == "flash_attention_2"


def test_an_answer_allows_its_tolerance_of_the_largest_number_and_no_more():
    answer = Answer(torch.tensor([100.0, 1.0], dtype=torch.float64), tolerance=1e-3)
    assert answer.is_close_to(torch.tensor([100.0, 1.09], dtype=torch.float64))
    assert not answer.is_close_to(torch.tensor([100.0, 1.11], dtype=torch.float64))
    assert not answer.is_close_to(torch.tensor([[100.0, 1.0]], dtype=torch.float64))
    assert not answer.is_close_to(torch.tensor([100.0, torch.nan], dtype=torch.float64))


def test_a_module_that_rounds_to_float32_inside_is_compared_less_strictly():
    x = random_x(10)
    assert run_module(Easy().double(), x).tolerance == 1e-9
    assert run_module(Assignment().double(), x).tolerance == 1e-5  # √5 as a float32 tensor


def test_a_module_that_returns_no_tensor_is_refused():
    class Says(Easy):
        def forward(self, x):
            return "attention"

    with pytest.raises(ValueError, match="Says returns str; return a tensor, or a tuple that starts with it"):
        run_module(Says(), random_x(10))


def test_an_axis_order_of_its_own_is_undone():
    module = nn.MultiheadAttention(10, 2, batch_first=False).double()
    x = random_x(10)
    expected = module(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1))[0].transpose(0, 1)
    torch.testing.assert_close(run_module(module, x).out, expected)
