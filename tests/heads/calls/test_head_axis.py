"""Which axis holds the heads, by sizes: by the module, by memory, by a view; otherwise assumed or unknown."""

import pytest
import torch
from torch import nn

from regard.heads.calls.basis import How
from regard.heads.calls.head_axis import HeadAxis, declared_heads, find_head_axis
from regard.heads.calls.score_origin import Memory

T, S = 5, 7


@pytest.mark.parametrize(
    ("shape", "options", "expected", "how"),
    [
        ((T, S), {"declared": 4, "batch": 2}, (1, 1), How.CALL),
        ((6, T, S), {"declared": 3, "batch": 2}, (2, 3), How.ASSUMED),
        ((18, T, S), {"declared": 3, "batch": 2}, (6, 3), How.ASSUMED),  # three windows for each text
        ((6, T, S), {"declared": None, "batch": 2}, (2, 3), How.ASSUMED),
        ((6, T, S), {"declared": None, "batch": 6}, (6, 1), How.CALL),
        ((6, T, S), {"declared": 4, "batch": 6}, (6, 1), How.ASSUMED),
        ((6, T, S), {"declared": None, "batch": None}, (6, 1), How.ASSUMED),
        ((6, T, S), {"declared": None, "batch": 4}, (6, 1), How.UNKNOWN),
        ((6, T, S), {"declared": None, "batch": 2, "viewed": (3, 2)}, (3, 2), How.CALL),
        ((2, 3, T, S), {"declared": 3, "batch": 2}, (2, 3), How.CALL),
        ((2, 3, T, S), {"declared": None, "batch": 2, "given": 2}, (2, 3), How.CALL),  # all tokens are elsewhere
        ((2, 3, T, S), {"declared": None, "batch": 2}, (2, 3), How.ASSUMED),
        ((3, 3, T, S), {"declared": 3, "batch": 3, "given": 3}, (3, 3), How.ASSUMED),  # texts or heads
        ((2, T, T, S), {"declared": T, "batch": 2, "given": 2}, (2, T), How.ASSUMED),  # queries or heads
        (
            (2, 3, T, S),
            {"declared": T, "batch": 2},
            (2, 3),
            How.UNKNOWN,
        ),  # queries and heads may be the other way round
        ((8, T, S), {"declared": 4, "batch": 2, "given": 8}, (8, 1), How.ASSUMED),  # windows; one head after the other
        ((8, 3, T, S), {"declared": 4, "batch": 2}, (6, 4), How.ASSUMED),  # texts and heads, windows
        ((2, 3, T, S), {"declared": 1, "batch": 2}, (6, 1), How.ASSUMED),  # texts, windows
        ((2, 3, T, S), {"declared": 4, "batch": 2}, (2, 3), How.ASSUMED),
        ((2, 3, T, S), {"declared": 4, "batch": 2, "by_convention": True}, (2, 3), How.ASSUMED),
        ((2, 3, 4, T, S), {"declared": 12, "batch": 2}, (2, 12), How.CALL),  # 3 groups of 4 heads
        ((2, 3, 4, T, S), {"declared": 4, "batch": 2}, (6, 4), How.ASSUMED),
        ((2, 3, 4, T, S), {"declared": 3, "batch": 2}, (8, 3), How.ASSUMED),
        ((2, 3, 3, T, S), {"declared": 3, "batch": 2}, (6, 3), How.UNKNOWN),
        ((2, 3, 4, T, S), {"declared": 11, "batch": 2}, (6, 4), How.UNKNOWN),
        ((2, 3, 4, T, S), {"declared": None, "batch": 2}, (6, 4), How.UNKNOWN),
        ((2, 3, 4, T, S), {"declared": None, "batch": 2, "by_convention": True}, (6, 4), How.ASSUMED),
    ],
)
def test_the_axis_of_heads(shape, options, expected, how):
    axis = find_head_axis(shape, **options)
    assert axis.apply(torch.empty(shape)).shape == (*expected, T, S)
    assert axis.fact.how is how


def test_memory_tells_between_two_axes_of_the_same_size():
    projected = torch.randn(2, T, 3, 3 * 8)  # texts, tokens, windows, heads · width
    q = projected.view(2, T, 3, 3, 8).permute(0, 3, 2, 1, 4)
    memory = Memory(tuple(q.shape), q.stride())
    axis = find_head_axis((2, 3, 3, T, S), declared=3, batch=2, q=memory)
    assert (axis.axis, axis.fact.how) == (-4, How.CALL)
    copied = q.contiguous()
    assert Memory(tuple(copied.shape), copied.stride()).heads_axis is None


def test_heads_are_moved_to_the_second_axis():
    weights = torch.randn(2, 3, 4, T, S)
    assert torch.equal(HeadAxis(-4).apply(weights), weights.transpose(1, 2).flatten(0, 1))
    assert HeadAxis(-4).reorders
    assert not HeadAxis(-3).reorders


def test_heads_that_share_an_axis_with_the_texts_are_taken_out_of_it():
    weights = torch.randn(2 * 4, 3, T, S)  # texts and heads, windows
    expected = weights.view(2, 4, 3, T, S).transpose(1, 2).flatten(0, 1)
    assert torch.equal(find_head_axis((8, 3, T, S), declared=4, batch=2).apply(weights), expected)


def test_the_innermost_module_with_a_number_of_heads_is_asked():
    inner, outer = nn.Linear(2, 2), nn.Linear(2, 2)
    outer.num_attention_heads = 6
    assert declared_heads([inner, outer]) == 6
    inner.n_heads = 3
    assert declared_heads([inner, outer]) == 3
    inner.n_heads = True
    assert declared_heads([inner]) is None


def test_a_number_of_heads_may_be_of_the_class_or_computed_or_missing():
    class Fixed(nn.Linear):
        num_heads = 5

    class Computed(nn.Linear):
        @property
        def num_heads(self):
            return self.config["heads"]

    class Forwarding(nn.Linear):
        def __getattr__(self, name):
            return 3 if name == "n_head" else super().__getattr__(name)

    computed = Computed(2, 2)
    assert declared_heads([computed]) is None
    computed.config = {"heads": 7}
    assert [declared_heads([one]) for one in (Fixed(2, 2), computed, Forwarding(2, 2))] == [5, 7, 3]
