"""Which steps a tensor was made from."""

import torch
import torch.nn.functional as F

from regard import step, trace
from regard.traces.lineage import OUTSIDE, Lineage, ancestors, descendants


def test_a_step_knows_the_steps_it_was_made_from():
    x = torch.randn(3, 5)
    with trace() as t:
        a = step("a", x * 2)
        b = step("b", torch.ones(5))
        step("c", torch.cat([a.transpose(0, 1).mT, (a + b).relu()]))
    assert [s.inputs for s in t] == [(OUTSIDE,), (), (0, 1)]


def test_what_is_written_into_a_tensor_goes_with_it():
    x = torch.randn(3, 5)
    with trace() as t:
        a, b = step("a", x * 2), torch.zeros(3, 5)
        b[1] = a[0]
        step("b", b)
        c = torch.zeros(3, 5)
        c[0].copy_(a[1])  # by way of a view
        step("c", c)
        step("d", c.mul_(2))
    assert [s.inputs for s in t] == [(OUTSIDE,), (0,), (0,), (2,)]


def test_calls_of_code_that_names_nothing_have_inputs_too():
    q, k = torch.randn(3, 5), torch.randn(3, 5)
    with trace() as t:
        F.softmax(q @ k.mT, dim=-1) @ k
    assert t.names == ["scores", "weights", "context"]
    assert [s.inputs for s in t] == [(OUTSIDE,), (0,), (OUTSIDE, 1)]


def test_parts_of_one_tensor_were_made_from_the_same_step():
    x = torch.randn(3, 6)
    with trace() as t:
        a, b = step("whole", x + 1).chunk(2, dim=-1)
        step("a", a)
        step("sum", a + b)
    assert [s.inputs for s in t] == [(OUTSIDE,), (0,), (0, 1)]


def test_ancestors_and_descendants_are_direct_or_by_way_of_others():
    with trace() as t:
        a = step("a", torch.ones(2))
        b = step("b", a + 1)
        step("c", torch.ones(3))
        step("d", b * 2)
    assert ancestors(t.steps, 3) == {0, 1}
    assert descendants(t.steps, 0) == {1, 3}
    assert ancestors(t.steps, 2) == descendants(t.steps, 2) == set()


def test_a_tensor_that_nobody_made_is_from_outside():
    assert Lineage().mark(torch.ones(2), 7) == (OUTSIDE,)
