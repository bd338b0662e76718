"""Scores are followed from the product of queries and keys to their softmax."""

import torch
from torch import nn

from regard.heads.calls.score_origin import ScoreOrigins, learned

Q, K = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)


def test_a_product_of_two_activations_is_scores_as_long_as_it_lives():
    scores, origins = Q @ K.mT, ScoreOrigins()
    origins.product(Q, K.mT, scores)
    memory = origins.of(scores)
    assert memory is not None
    assert memory.shape == tuple(K.shape)  # both were copied, so neither says where its heads are
    del scores
    assert origins.alive == {}


def test_a_product_with_something_learned_is_no_scores():
    weight, origins = nn.Parameter(torch.randn(7, 8)), ScoreOrigins()
    for right in (weight.T, weight.mT[None, None]):
        scores = Q @ right
        origins.product(Q, right, scores)
        assert origins.of(scores) is None
    assert learned(weight[:3])
    assert not learned(Q)


def test_scores_are_followed_through_what_changes_them_and_end_at_a_projection():
    origins, scores = ScoreOrigins(), Q @ K.mT
    origins.product(Q, K.mT, scores)
    capped = torch.tanh(scores)
    origins.follow("tanh", (scores,), {}, capped)
    joined = torch.cat([capped, capped], -1)
    origins.follow("cat", ([capped, capped], -1), {}, joined)
    filled = torch.zeros(2, 3, 5, 9)
    filled[..., :7] = capped
    origins.follow("__setitem__", (filled, (..., slice(7)), capped), {}, None)
    projected, mixed = nn.Linear(7, 4)(scores), nn.Conv2d(3, 3, 1)(scores)  # the second mixes heads
    origins.follow("linear", (scores,), {}, projected)
    origins.follow("conv2d", (scores,), {}, mixed)
    assert all(origins.of(t) is not None for t in (capped, joined, filled, mixed))
    assert origins.of(projected) is None
    by_heads, values = nn.Parameter(torch.randn(3, 3)), torch.randn(2, 3, 7, 7)
    talking = torch.einsum("bhts,hg->bgts", scores, by_heads)
    origins.follow("einsum", ("bhts,hg->bgts", scores, by_heads), {}, talking)
    context = scores @ values
    origins.follow("matmul", (scores, values), {}, context)
    assert origins.of(talking) is not None
    assert origins.of(context) is None


def test_parts_of_scores_are_scores_and_so_are_the_largest_of_them():
    origins, scores = ScoreOrigins(), Q @ K.mT
    origins.product(Q, K.mT, scores)
    largest, halves = scores.topk(3, -1), scores.split([1, 4], 2)
    origins.follow("topk", (scores, 3, -1), {}, largest)
    origins.follow("split", (scores, [1, 4], 2), {}, halves)
    assert all(origins.of(t) is not None for t in (largest.values, *halves))
    assert origins.of(largest.indices) is None
