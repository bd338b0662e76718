"""step() and who collects it: nested blocks, threads, and compiled graphs."""

import threading

import pytest
import torch

from regard import MultiHeadAttention, step, trace
from regard.steps import collecting, tracing


def collector(names):
    return lambda name, value, operation, why: names.append(name)


def test_without_a_collector_a_step_returns_the_very_tensor():
    x = torch.randn(3)
    assert step("x", x, "input", "why") is x
    assert not tracing()


def test_a_collector_gets_all_that_the_step_gives():
    collected, x = [], torch.randn(3)
    with collecting(lambda *arguments: collected.append(arguments)):
        step("x", x, "input", "one vector")
        step("y", x)
    assert [(name, value is x, operation, why) for name, value, operation, why in collected] == [
        ("x", True, "input", "one vector"),
        ("y", True, "", ""),
    ]


def test_the_innermost_block_collects_and_the_outer_one_continues_after_it():
    outer, inner, x = [], [], torch.ones(1)
    with collecting(collector(outer)):
        step("before", x)
        with collecting(collector(inner)):
            step("inside", x)
        step("after", x)
    step("outside", x)
    assert outer == ["before", "after"]
    assert inner == ["inside"]


def test_collecting_ends_when_its_block_fails():
    def fail():
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"), collecting(collector([])):
        fail()
    assert not tracing()


def in_a_thread(function):
    errors = []

    def run():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def test_a_trace_in_a_second_thread_neither_stops_nor_erases_the_first():
    second = []

    def other():
        assert not tracing()
        with trace() as t:
            step("theirs", torch.ones(2))
        second.append(t)

    with trace() as first:
        step("before", torch.ones(3))
        in_a_thread(other)
        assert tracing()
        step("after", torch.ones(3))
    assert first.names == ["before", "after"]
    assert second[0].names == ["theirs"]


def test_a_second_thread_without_a_trace_is_not_recorded_by_the_first():
    with trace() as t:
        step("mine", torch.ones(3))
        in_a_thread(lambda: step("theirs", torch.ones(3) + 1))
    assert t.names == ["mine"]


def test_traces_that_end_in_the_order_they_began_do_not_disturb_each_other():
    entered, may_leave, second = threading.Event(), threading.Event(), []

    def other():
        with trace() as t:
            step("theirs", torch.ones(2))
            entered.set()
            may_leave.wait(timeout=60)
            step("theirs too", torch.ones(2))
        second.append(t)

    thread = threading.Thread(target=other)
    with trace() as first:
        thread.start()
        assert entered.wait(timeout=60)
        step("mine", torch.ones(2))
    may_leave.set()
    thread.join()
    assert first.names == ["mine"]
    assert second[0].names == ["theirs", "theirs too"]


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own compiler uses what torch deprecates
def test_a_compiled_graph_has_no_steps():
    layer = MultiHeadAttention(d_in=6, d_out=10, context_length=11, dropout=0.0, num_heads=2)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, names = torch.randn(2, 7, 6), []
    torch.testing.assert_close(compiled(x), layer(x))
    with collecting(collector(names)):
        out = compiled(x)
    assert names == []
    torch.testing.assert_close(out, layer(x))
