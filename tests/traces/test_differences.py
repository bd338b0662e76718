"""t.diff(other) aligns steps by meaning: correct layers are equal, and a mistake is found where it was made."""

import re

import pytest
import torch
from torch import nn

import regard
from learners import Assignment, Easy, Fast
from regard import ladder, step, trace
from regard.traces.differences import Difference
from sampled import quick_every
from traces.homework import CORRECT, D_IN, WRONG, B, E, H, Homework, T, plain, reference


def run(function, x):
    return trace(Homework(function, reference().state_dict()).eval(), x)


def random_x():
    return torch.randn(B, T, D_IN, generator=torch.Generator().manual_seed(3))


def shipped():
    layer = regard.MultiHeadAttention(D_IN, E, 13, 0.0, H).eval()
    layer.load_state_dict(reference().state_dict())
    return layer


@pytest.fixture(params=["ladder", "shipped"])
def expected(request):
    """The trace of a correct layer: the ladder's, or the one to ship."""
    return trace(reference() if request.param == "ladder" else shipped(), random_x())


@pytest.mark.parametrize("function", CORRECT, ids=lambda f: f.__name__)
def test_a_correct_layer_is_equal_however_it_is_written(function, expected):
    homework = run(function, random_x())
    assert homework.diff(expected) is None
    assert expected.diff(homework) is None


@pytest.mark.parametrize(("function", "name", "meaning"), WRONG, ids=lambda f: getattr(f, "__name__", None))
def test_a_mistake_is_found_at_its_step(function, name, meaning, expected):
    difference = run(function, random_x()).diff(expected)
    assert difference is not None
    assert (difference.name, difference.meaning) == (name, meaning)
    assert "\n" not in str(difference)


@pytest.mark.parametrize("function", quick_every(3, [f for f, _, _ in WRONG], lambda f: f.__name__))
def test_both_directions_name_the_same_fault(function, expected):
    homework = run(function, random_x())
    one, other = homework.diff(expected), expected.diff(homework)
    assert one.meaning == other.meaning
    values = re.compile(r"^(\S+) against (\S+) at")
    if found := values.match(one.reason):
        assert values.match(other.reason).groups() == found.groups()[::-1]
    for mine, its in (("only this trace", "only the other trace"), ("after weights here", "before weights here")):
        assert (mine in one.reason, its in one.reason) == (its in other.reason, mine in other.reason)


def test_a_fused_call_says_which_option_is_missing_or_wrong():
    wrong, ref = {f.__name__: f for f, _, _ in WRONG}, trace(reference(), random_x())
    fault = "called without is_causal or attn_mask, but {} trace has a mask (masked_fill(mask, −∞))"
    t = run(wrong["fused_without_mask"], random_x())
    assert str(t.diff(ref)).endswith(f"; {fault.format('the other')}")
    assert str(ref.diff(t)).endswith(f"; the other is {fault.format('this')}")
    t = run(wrong["fused_without_scale"], random_x())
    assert "is_causal=True, scale=1)" in str(t.diff(ref))
    assert str(t.diff(ref)).endswith("; called with scale=1, but the other trace has scores / √5")
    assert str(ref.diff(t)).endswith("; the other is called with scale=1, but this trace has scores / √5")
    t = run(wrong["fused_with_another_mask"], random_x())
    assert str(t.diff(ref)).endswith("attn_mask=7×7, scale=0.4472) against weights @ values)")


def test_inputs_that_differ_are_said_first():
    x, y = random_x(), random_x()
    y[1, 2, 3] = 11.0
    pair = f"{x[1, 2, 3]:.6g} against 11 at [1, 2, 3]"
    for function in (plain, next(f for f, _, _ in WRONG)):
        difference = run(function, x).diff(trace(reference(), y))
        assert str(difference) == f"x: the inputs differ, {pair}; give both the same x"
    turned = trace(reference(), y).diff(run(plain, x))
    assert str(turned) == f"x: the inputs differ, 11 against {x[1, 2, 3]:.6g} at [1, 2, 3]; give both the same x"
    cut = trace(reference(), x[:, :5]).diff(run(plain, x))
    assert str(cut) == "x: the inputs differ, shape 2 × 5 × 11 against 2 × 7 × 11; give both the same x"


def test_an_input_that_the_layer_changes_is_kept_as_it_was():
    t = trace(lambda x: x.mul_(2), torch.ones(3))
    assert t.input.tolist() == [1, 1, 1]


def test_a_wrong_value_is_shown_where_the_gap_is_largest_with_both_operations():
    layer, x = reference(), random_x()
    wrong = reference()
    wrong.head_dim, wrong.num_heads = E, 1
    difference = trace(wrong, x).diff(trace(layer, x))
    assert difference.name == "scores"
    assert str(difference) == "scores: shape 2 × 1 × 7 × 7 against 2 × 3 × 7 × 7"
    with torch.no_grad():
        layer.W_key.weight[4, 2] += 10
    gap = (trace(layer, x)["keys"] - trace(shipped(), x)["keys"]).abs()
    place = [int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)]
    assert str(trace(layer, x).diff(trace(shipped(), x))).startswith("keys: ")
    assert str(trace(layer, x).diff(trace(shipped(), x))).endswith(f" at {place}")


def test_a_step_that_only_one_trace_has_is_named_with_its_place():
    unscaled = next(f for f, _, _ in WRONG if f.__name__ == "not_scaled")
    difference = run(unscaled, random_x()).diff(trace(shipped(), random_x()))
    assert str(difference) == "scaled: only the other trace has it (scores / √5); it comes before weights"
    no_projection = next(f for f, _, _ in WRONG if f.__name__ == "no_output_projection")
    difference = run(no_projection, random_x()).diff(trace(shipped(), random_x()))
    assert str(difference) == "out: only the other trace has it (out_proj(concat)); this one ends with view 4"


def test_a_step_made_from_the_wrong_tensor_says_from_which():
    wrong = next(f for f, _, _ in WRONG if f.__name__ == "keys_as_values")
    assert str(run(wrong, random_x()).diff(trace(reference(), random_x()))).endswith(
        "made from split keys, not from transpose values"
    )


def test_the_ladder_and_the_layer_to_ship_are_equal_both_ways():
    ours, theirs = trace(reference(), random_x()), trace(shipped(), random_x())
    assert ours.names != theirs.names
    assert ours.diff(theirs) is None
    assert theirs.diff(ours) is None


def test_one_head_is_self_attention_with_a_projection():
    head, layer = ladder.SelfAttention(D_IN, 5), regard.MultiHeadAttention(D_IN, 5, None, 0.0, 1, causal=False)
    layer.load_state_dict(head.state_dict(), strict=False)
    difference = trace(head, random_x()).diff(trace(layer, random_x()))
    assert str(difference) == "out: only the other trace has it (out_proj(concat)); this one ends with context"
    with torch.no_grad():
        layer.out_proj.weight.copy_(torch.eye(5))
        layer.out_proj.bias.zero_()
    assert trace(head, random_x()).diff(trace(layer, random_x())) is None


def test_heads_one_after_the_other_are_all_heads_at_once():
    wrapper, layer = ladder.MultiHeadAttentionWrapper(D_IN, 5, 13, 0.0, H), reference()
    with torch.no_grad():
        for name in ("W_query", "W_key", "W_value"):
            getattr(layer, name).weight.copy_(torch.cat([getattr(head, name).weight for head in wrapper.heads]))
        layer.out_proj.weight.copy_(torch.eye(E))
        layer.out_proj.bias.zero_()
    assert trace(wrapper, random_x()).diff(trace(layer, random_x())) is None
    assert trace(layer, random_x()).diff(trace(wrapper, random_x())) is None


@pytest.mark.parametrize("module", [Easy, Fast, Assignment])
def test_the_layers_of_other_texts_are_equal_to_what_adopt_makes_of_them(module):
    theirs, x = module().eval(), torch.randn(B, T, 10)
    assert trace(theirs, x).diff(trace(regard.adopt(theirs).eval(), x)) is None
    other = trace(theirs, x).diff(trace(regard.adopt(module()).eval(), x))
    assert other.name in ("q_linear", "qkv_proj", "W_q")


def test_a_mask_that_only_one_has_is_the_difference_either_way():
    plain_head, causal = ladder.SelfAttention(D_IN, 5), ladder.CausalAttention(D_IN, 5, 13, 0.0)
    causal.load_state_dict(plain_head.state_dict())
    a, b = trace(plain_head, random_x()), trace(causal, random_x())
    assert str(a.diff(b)) == "mask: only the other trace has it (masked_fill(mask, −∞)); it comes before weights"
    assert str(b.diff(a)) == "mask: only this trace has it (masked_fill(mask, −∞))"


def test_dropout_that_is_on_says_so():
    layer = ladder.CausalAttention(D_IN, 5, 13, 0.5)
    calm = trace(layer.eval(), random_x())
    difference = trace(layer.train(), random_x()).diff(calm)
    assert difference.name == "dropout"
    assert str(difference).endswith("dropout is on: call .eval() to compare")


def test_without_a_batch_axis_the_numbers_are_the_same():
    x, layer = random_x()[:1], reference()

    class OneText(nn.Module):
        def forward(self, x):
            q, k, v = (W(x).view(T, H, 5).transpose(0, 1) for W in (layer.W_query, layer.W_key, layer.W_value))
            weights = (q @ k.mT / 5**0.5).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1)
            return layer.out_proj((weights @ v).transpose(0, 1).reshape(T, E))

    assert trace(OneText(), x[0]).diff(trace(layer, x)) is None


def test_an_output_of_another_shape_is_a_difference():
    difference = run(lambda layer, x: plain(layer, x).transpose(0, 1), random_x()).diff(trace(reference(), random_x()))
    assert str(difference) == "transpose 6: shape 7 × 2 × 15 against 2 × 7 × 15"


def test_a_change_after_the_last_step_is_a_difference_of_the_output():
    class Doubled(nn.Module):
        def forward(self, x):
            return step("half", x / 2) * self.factor

    one, two = Doubled(), Doubled()
    one.factor, two.factor = 2, 3
    x = torch.tensor([[1.0, 2.0, 5.0]])
    assert str(trace(one, x).diff(trace(two, x))) == "output: 5 against 7.5 at [0, 2]"


def test_steps_of_the_same_name_contradict_each_other_even_if_the_outputs_agree():
    class Returned(nn.Module):
        def forward(self, x):
            step("weights", x.softmax(self.dim))
            return step("out", x * 2)

    one, two = Returned(), Returned()
    one.dim, two.dim = -1, -2
    x = torch.randn(3, 5)
    assert trace(one, x).diff(trace(two, x)).name == "weights"


def test_shapes_are_compared_where_there_are_no_values():
    with torch.device("meta"):
        layers = [regard.MultiHeadAttention(D_IN, width, None, 0.0, H) for width in (E, E, 2 * E)]
        a, b, c = (trace(layer, torch.empty(B, T, D_IN)) for layer in layers)
    assert a.diff(b) is None
    assert str(a.diff(c)) == "queries: shape 2 × 7 × 15 against 2 × 7 × 30"


def test_a_difference_in_a_deep_model_is_found_in_its_layer():
    config = regard.GPTConfig(vocab_size=31, context_length=16, num_layers=3, d_model=14, num_heads=2)
    torch.manual_seed(2)
    model, other = regard.GPT(config).eval(), regard.GPT(config).eval()
    other.load_state_dict(model.state_dict())
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    assert trace(model, ids).diff(trace(other, ids)) is None
    with torch.no_grad():
        other.blocks[1].attention.W_value.weight[3, 5] += 0.5
    assert trace(model, ids).diff(trace(other, ids)).name == "values 2"


def test_heads_joined_wrongly_are_found_also_where_tokens_and_heads_are_as_many():
    x = torch.randn(1, 4, 12)
    layer = ladder.MultiHeadAttention(12, 12, 4, 0.0, 4)

    class Joined(nn.Module):
        def forward(self, x):
            q, k, v = (W(x).view(1, 4, 4, 3).transpose(1, 2) for W in (layer.W_query, layer.W_key, layer.W_value))
            weights = (q @ k.mT / 3**0.5).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf).softmax(-1)
            return layer.out_proj((weights @ v).reshape(1, 4, 12))

    assert trace(Joined(), x).diff(trace(layer, x)).name == "reshape"


def test_the_same_code_differs_at_its_first_step_though_later_ones_are_close():
    class Hidden(nn.Module):
        def forward(self, x):
            small = step("large", step("small", x * self.factor) * 1e-12 + 1)
            return step("back", (small - 1) * 1e12)

    one, two = Hidden(), Hidden()
    one.factor, two.factor = (nn.Parameter(torch.tensor(n, dtype=torch.float64)) for n in (2, 3))
    x = torch.randn(3, 5, dtype=torch.float64)
    assert trace(one, x).diff(trace(two, x)).name == "small"


def test_a_repeated_name_is_not_explained_by_itself():
    assert str(Difference("keys 4", "1 against 2", "keys")) == "keys 4: 1 against 2"
    assert str(Difference("energy", "1 against 2", "scores")) == "energy (scores): 1 against 2"
