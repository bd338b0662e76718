import contextvars
import pickle

import pytest
import torch
from torch import nn

import regard
from regard import MultiHeadAttention, step, trace
from regard import steps as step_module
from regard.steps import tracing
from regard.traces.trace import WHY, trace_layer, trace_layers

LAYER = {"d_in": 6, "d_out": 15, "context_length": 11, "dropout": 0.0, "num_heads": 3}


class Halves(nn.Module):
    """A module with two steps, the second changed in place afterwards."""

    def forward(self, x):
        half = step("half", x / 2, "x / 2", "so that it is smaller")
        quarter = step("quarter", half / 2)
        return quarter.add_(100)


def test_outside_a_trace_a_step_hands_back_the_very_tensor_and_keeps_nothing():
    x = torch.randn(3)
    assert step("x", x) is x
    assert not tracing()


def test_inside_a_trace_a_step_still_hands_back_the_very_tensor():
    x = torch.randn(3, requires_grad=True)
    with trace() as t:
        assert tracing()
        assert step("x", x) is x
    assert t["x"] is not x
    assert not t["x"].requires_grad


def test_a_trace_keeps_names_operations_shapes_values_reasons_and_the_result():
    x = torch.randn(2, 3)
    t = trace(Halves(), x)
    assert t.names == ["half", "quarter"]
    assert [(s.name, s.operation, s.shape, s.dtype, s.why) for s in t] == [
        ("half", "x / 2", (2, 3), torch.float32, "so that it is smaller"),
        ("quarter", "half / 2", (2, 3), torch.float32, ""),
    ]
    torch.testing.assert_close(t["half"], x / 2)
    torch.testing.assert_close(t[1], x / 4)
    torch.testing.assert_close(t.out, x / 4 + 100)
    assert len(t) == 2
    assert "half" in t
    assert "third" not in t


def test_a_later_change_in_place_does_not_reach_what_was_recorded():
    x = torch.ones(2)
    with trace() as t:
        step("before", x)
        x.mul_(7)
        step("after", x)
    assert t["before"].tolist() == [1.0, 1.0]
    assert t["after"].tolist() == [7.0, 7.0]


def test_a_change_to_what_was_recorded_does_not_reach_the_computation():
    x = torch.ones(2)
    with trace() as t:
        step("x", x)
        t["x"].mul_(7)
    assert x.tolist() == [1.0, 1.0]


def test_a_name_used_again_gets_a_number():
    with trace() as t:
        for value in (1.0, 2.0, 3.0):
            step("x", torch.tensor(value))
    assert t.names == ["x", "x 2", "x 3"]
    assert t["x 3"].item() == 3.0


def test_known_names_come_with_their_reason():
    with trace() as t:
        step("weights", torch.ones(2))
        step("weights", torch.ones(2), why="my own")
    assert [s.why for s in t] == [WHY["weights"], "my own"]


def test_the_reason_of_a_split_is_the_number_of_heads_unless_one_is_given():
    x = torch.randn(2, 7, 15)
    with trace() as t:
        step("split", x.view(2, 7, 3, 5))
        step("split keys", x.unflatten(-1, (1, 15)))
        step("split", x.view(2, 7, 3, 5), why="my own")
        step("split", x.view(2, 7, 3, 5).transpose(1, 2))  # which axis holds the heads is not known
    assert [s.why for s in t] == ["3 heads of 5", "1 head of 15", "my own", WHY["split"]]


def test_an_inner_trace_takes_its_own_steps_and_the_outer_one_continues_after():
    with trace() as outer:
        step("before", torch.ones(1))
        with trace() as inner:
            step("inside", torch.ones(1))
        step("after", torch.ones(1))
    assert inner.names == ["inside"]
    assert outer.names == ["before", "after"]
    assert not tracing()


def test_a_trace_ends_when_its_block_fails():
    def fail():
        step("x", torch.ones(1))
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"), trace() as t:
        fail()
    assert not tracing()
    assert t.names == ["x"]


def test_a_step_is_found_by_its_name_with_all_that_is_known_of_it():
    t = trace(Halves(), torch.ones(2))
    assert (t.find("half").operation, t.find("half").why) == ("x / 2", "so that it is smaller")
    assert t.has_names
    assert not trace(nn.ReLU(), torch.ones(2)).has_names


def test_a_missing_step_says_which_there_are():
    t = trace(Halves(), torch.ones(2))
    with pytest.raises(KeyError, match="no step is called 'scores'; this trace has half, quarter"):
        t["scores"]
    with pytest.raises(KeyError, match="no step is called 'scores'; this trace has none"):
        trace()["scores"]


def test_a_layer_is_traced_step_by_step_with_the_same_result():
    layer = MultiHeadAttention(**LAYER)
    x = torch.randn(2, 7, 6)
    t = trace(layer, x)
    torch.testing.assert_close(t.out, layer(x))
    torch.testing.assert_close(t["out"], t.out)
    shapes = {s.name: s.shape for s in t}
    assert list(shapes)[:4] == ["x", "queries", "keys", "values"]
    assert shapes["split"] == (2, 7, 3, 5)
    assert shapes["transpose"] == shapes["context"] == (2, 3, 7, 5)
    assert shapes["scores"] == shapes["mask"] == shapes["scaled"] == shapes["weights"] == (2, 3, 7, 7)
    assert shapes["concat"] == shapes["out"] == (2, 7, 15)
    torch.testing.assert_close(t["queries"], layer.W_query(x))
    torch.testing.assert_close(t["weights"].sum(-1), torch.ones(2, 3, 7))
    assert torch.equal(t["mask"].isinf(), torch.ones(7, 7).triu(1).bool().expand(2, 3, 7, 7))


def test_a_trace_does_not_change_what_the_layer_learns():
    layer = MultiHeadAttention(**LAYER)
    x = torch.randn(2, 7, 6)
    layer(x).square().sum().backward()
    plain = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    trace(layer, x).out.square().sum().backward()
    torch.testing.assert_close({name: p.grad for name, p in layer.named_parameters()}, plain)


def test_the_same_run_twice_does_not_differ():
    layer, x = MultiHeadAttention(**LAYER), torch.randn(2, 7, 6)
    assert trace(layer, x).diff(trace(layer, x)) is None


def test_diff_names_the_first_step_that_differs_and_the_largest_gap():
    a, b = steps(x=[1.0, 2.0], y=[[1.0, 5.0]], z=[0.0]), steps(x=[1.0, 2.0], y=[[1.5, 3.0]], z=[9.0])
    difference = a.diff(b)
    assert difference.name == "y"
    assert str(difference) == "y: 5 against 3 at [0, 1]"


def test_diff_looks_past_what_both_hide():
    hidden = -torch.inf
    a, b = steps(mask=[[1.0, hidden, 3.0]]), steps(mask=[[1.0, hidden, 4.0]])
    assert str(a.diff(b)).startswith("mask: 3 against 4 at [0, 2]")


def test_diff_of_single_numbers_says_both():
    assert str(steps(x=1.0).diff(steps(x=2.0))).startswith("x: 1 against 2")


def test_diff_sees_nan_and_infinity():
    assert str(steps(x=[1.0, torch.nan]).diff(steps(x=[1.0, 2.0]))).startswith("x: nan against 2 at [1]")
    assert str(steps(x=[-torch.inf]).diff(steps(x=[2.0]))).startswith("x: -inf against 2 at [0]")
    assert steps(x=[torch.nan]).diff(steps(x=[torch.nan])) is None


def test_diff_of_shapes_says_both_shapes():
    assert str(steps(x=[[1.0], [2.0]]).diff(steps(x=[1.0, 2.0, 3.0]))) == "x: shape 2 × 1 against 3"
    assert str(steps(x=[[1.0, 2.0]]).diff(steps(x=1.0))) == "x: shape 1 × 2 against one number"


def test_diff_of_an_empty_trace_says_which_is_empty():
    assert str(steps(x=1.0).diff(trace())) == "x: only this trace has it; the other has no steps"
    assert str(trace().diff(steps(x=1.0))) == "x: only the other trace has it; this one has no steps"
    assert trace().diff(trace()) is None


def test_diff_uses_the_tolerances_given():
    a, b = steps(x=[1.0]), steps(x=[1.01])
    assert a.diff(b).name == "x"
    assert a.diff(b, rtol=0.1, atol=0.0) is None


def test_diff_takes_one_tolerance_alone():
    assert steps(x=[1.0]).diff(steps(x=[1.01]), atol=0.1) is None


def steps(**values):
    """A trace of these steps."""
    tensors = {name: torch.tensor(value) for name, value in values.items()}
    with trace() as t:
        for name, tensor in tensors.items():
            step(name, tensor)
    return t


def test_a_trace_that_ends_in_another_context_leaves_no_function_mode_behind():
    def traced():
        with trace() as t:
            yield t

    block = traced()
    next(block)
    contextvars.copy_context().run(block.close)
    assert torch._C._len_torch_function_stack() == 0
    assert step_module._collector.open_blocks == 0
    step_module._collector._variable.set(None)  # this context never saw the end of the block


def test_a_trace_can_be_pickled():
    layer = regard.MultiHeadAttention(6, 6, 8, 0.0, 2)
    for module in (layer, torch.nn.Linear(6, 6)):  # named steps, and none
        t = trace(module, torch.randn(1, 5, 6))
        copy = pickle.loads(pickle.dumps(t))
        assert copy.names == t.names
        torch.testing.assert_close([s.value for s in copy], [s.value for s in t], rtol=0, atol=0)


def test_tracing_one_layer_of_a_model_gives_its_weights():
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([[5, 17, 23, 42, 7]])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    for layer in (4, "blocks.4.attention"):
        torch.testing.assert_close(trace_layer(model, layer, ids)["weights"], seen[4].weights())
    assert not model.blocks[4].attention._forward_pre_hooks


def test_a_layer_that_is_not_there_says_which_are():
    model = regard.GPT("tiny")
    with pytest.raises(ValueError, match="there is no layer 6; this model has layers 0 to 5"):
        trace_layer(model, 6, torch.tensor([[1]]))
    with pytest.raises(ValueError, match=r"no layer is called 'attn'; seen.layers has the names"):
        trace_layer(model, "attn", torch.tensor([[1]]))
    with pytest.raises(ValueError, match=r"Linear has no regard.MultiHeadAttention to count; give the layer's name"):
        trace_layer(torch.nn.Linear(2, 3), 0, torch.ones(2))


def test_several_layers_are_traced_by_their_numbers():
    model = regard.GPT("tiny").eval()
    ids = torch.tensor([[5, 17, 23]])
    traces = trace_layers(model, {"ids": ids}, [4, 1])
    assert list(traces) == [4, 1]
    torch.testing.assert_close(traces[1]["weights"], trace_layer(model, 1, ids)["weights"])
