"""Which steps of two traces hold the same numbers."""

import torch

from regard import step, trace
from regard.traces.counterparts import ComparedTrace

T, D = 7, 5
Q, K = torch.randn(2, T, D, generator=torch.Generator().manual_seed(4))


def compared(*traces):
    a, b = (ComparedTrace(t, None, None) for t in traces)
    a.other, b.other = b, a
    return a, b


def of(function):
    with trace() as t:
        function()
    return t


def test_a_step_finds_its_numbers_under_another_name_and_in_another_layout():
    a, _ = compared(of(lambda: step("mine", Q * 2)), of(lambda: (step("x", K * 1), step("theirs", (Q * 2).mT))))
    assert a.counterpart(0) == [1]


def test_steps_of_the_same_name_belong_together():
    def swapped():
        step("queries", K * 1)
        step("keys", Q * 1)

    def right():
        step("queries", Q * 1)
        step("keys", K * 1)

    a, _ = compared(of(swapped), of(right))
    assert a.counterpart(0) == a.counterpart(1) == []


def test_a_step_is_excused_by_what_was_made_from_it():
    def scaled_queries():
        step("weights", step("scores", step("small", Q / D**0.5) @ K.mT).softmax(-1))

    def scaled_scores():
        step("weights", step("scaled", step("scores", Q @ K.mT) / D**0.5).softmax(-1))

    a, b = compared(of(scaled_queries), of(scaled_scores))
    assert [a.counterpart(i) for i in range(3)] == [[], [1], [2]]
    assert b.counterpart(0) == []
    assert list(a.suspects()) == list(b.suspects()) == []


def test_a_mask_has_a_counterpart_only_if_the_same_is_hidden():
    def masked(diagonal):
        scores = step("scores", Q @ K.mT)
        step("mask", scores.masked_fill(torch.ones(T, T).triu(diagonal).bool(), -torch.inf))

    a, _ = compared(of(lambda: masked(1)), of(lambda: masked(2)))
    assert (a.counterpart(0), a.counterpart(1)) == ([0], [])
    a, _ = compared(of(lambda: masked(1)), of(lambda: masked(1)))
    assert a.counterpart(1) == [1]


def test_the_output_is_the_last_step_that_holds_it():
    layer = torch.nn.Linear(D, 3)
    (side, _) = compared(trace(layer, Q), trace(layer, Q))
    assert side.final == 0
    doubled = trace(layer, Q)
    doubled.out = doubled.out * 2
    side, _ = compared(doubled, doubled)
    assert (side.final, side.steps[1].name) == (1, "output")
