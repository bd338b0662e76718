"""Target keys: one key for each query, or none."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from heads import dense
from heads.dense import random_call
from heads.made_calls import made_call
from heads.measure.test_statistics import masks
from regard.attention.masks import causal
from regard.heads.measure.registry import Start, Target
from regard.heads.measure.target_keys import (
    NONE,
    earlier_from_first_key,
    earlier_occurrence,
    first_visible,
    locate,
    target_keys,
)

FIRST = torch.tensor([[0], [2]])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(Start.FIRST), [[0] * 5, [2] * 5]),
        (Target(Start.OWN), [[0, 1, 2, 3, 4], [-1, -1, 2, 3, 4]]),
        (Target(Start.OWN, -2), [[-1, -1, 0, 1, 2], [-1, -1, -1, -1, 2]]),
        (Target(Start.OWN, 1), [[1, 2, 3, 4, -1], [-1, 2, 3, 4, -1]]),
        (Target(Start.EARLIER), [[-1, 0, -1, 2, -1], [-1, -1, -1, -1, 3]]),
        (Target(Start.EARLIER, 1), [[-1, 1, -1, 3, -1], [-1, -1, -1, -1, 4]]),
    ],
    ids=str,
)
def test_a_key_before_the_first_or_after_the_last_is_none(target, expected):
    earlier = torch.tensor([[NONE, 0, NONE, 2, NONE], [NONE, NONE, NONE, NONE, 3]])
    assert locate(target, FIRST, torch.arange(5), earlier, size=5).tolist() == expected


def test_without_tokens_nothing_occurred_before():
    assert locate(Target(Start.EARLIER, 1), FIRST, torch.arange(3), None, size=3).tolist() == [[-1] * 3] * 2


def test_keys_added_after_the_text_follow_no_query():
    call = random_call(1, 2, T=3, S=5, extra=2)
    (own, following) = target_keys(call, torch.ones(1, 2, 3).bool(), [Target(Start.OWN), Target(Start.OWN, 1)])
    assert own.tolist() == [[0, 1, 2]]
    assert following.tolist() == [[1, 2, -1]]


@pytest.mark.parametrize("T, S", [(5, 5), (7, 13), (13, 7)], ids=str)
@pytest.mark.parametrize("name", list(masks(2, 5, 5)))
def test_the_first_visible_key_is_that_of_the_dense_mask(T, S, name):
    mask = masks(2, T, S).get(name)
    if mask is None:
        pytest.skip("documents need a key for every query")
    call = random_call(2, 3, T, S, 11, mask=mask, real=torch.rand(2, T) > 0.3)
    assert torch.equal(first_visible(call, dense.counted(call)), dense.first(call))


def test_weights_and_biases_that_hide_the_first_keys_move_it():
    bias = torch.zeros(1, 1, 1, 7)
    bias[..., :3] = -torch.inf
    call = random_call(2, 3, 5, 7, bias=bias)
    assert first_visible(call, dense.counted(call)).tolist() == [3, 3]
    weights = torch.rand(1, 2, 5, 7)
    weights[..., :4] = 0
    call = made_call("", weights=weights)
    assert first_visible(call, dense.counted(call)).tolist() == [4]


def test_an_earlier_occurrence_before_the_first_key_does_not_exist():
    tokens = torch.tensor([[3, 1, 3, 3, 1]])
    call = random_call(1, 1, 3, 5, tokens=tokens, mask=causal())  # queries stand at keys 2, 3 and 4
    assert earlier_occurrence(call, 0).tolist() == [[0, 2, 1]]
    assert earlier_occurrence(call, 2).tolist() == [[NONE, 2, NONE]]


def test_earlier_occurrences_are_computed_once_for_all_layers_and_again_for_other_ids():
    ids = torch.tensor([[3, 5, 3, 3, 7]])
    first, second = (earlier_from_first_key(random_call(B=1, tokens=ids)) for _ in range(2))
    assert first is second
    assert first.dtype is torch.int32
    assert first.tolist() == earlier_occurrence(random_call(B=1, tokens=ids), 0).tolist()
    ids[0, 1] = 3
    assert earlier_from_first_key(random_call(B=1, tokens=ids)).tolist() == [[NONE, 0, 1, 2, NONE]]
    two = random_call(B=2, tokens=ids.expand(2, -1))
    assert earlier_from_first_key(two).tolist() == earlier_occurrence(two, 0).tolist()
    later = earlier_from_first_key(random_call(B=1, T=2, S=5, tokens=ids))
    assert later.tolist() == [[2, NONE]]


def test_threads_that_watch_two_models_at_once_never_read_each_others_text():
    texts = [torch.tensor([[5, 7, 5, 5, 7]]), torch.tensor([[1, 1, 2, 2, 1]])]
    right = [torch.tensor([[NONE, NONE, 0, 2, 1]]), torch.tensor([[NONE, 0, NONE, 2, 1]])]
    both_read, kept = Barrier(2), [False, False]

    def read(number):
        call = random_call(B=1, T=5, tokens=texts[number])
        first = earlier_from_first_key(call)
        for _ in range(200):
            both_read.wait(timeout=60)  # the other thread has read its own text by now
            assert torch.equal(earlier_from_first_key(call), right[number])
        kept[number] = earlier_from_first_key(call) is first

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(read, range(2)))
    assert kept == [True, True]  # also computed once in each
