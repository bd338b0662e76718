"""What each axis of weights is: texts, heads or queries, in whatever order, and several in one axis."""

import pytest
import torch
from torch import nn

from heads.calls.test_number_labels import Recording
from regard.heads.calls.axis_roles import (
    BETWEEN_FEATURES,
    AxisPart,
    AxisPlan,
    are_weights,
    has_features_as_rows,
    mixes_tokens,
    multiplies_keys_with_values,
    roles_of_factors,
    roles_of_scores,
)

B, T, H, D = 2, 5, 3, 4
E = H * D


def run(function):
    """The step of what this makes of queries, keys and values, (B, T, E) each."""
    layers, mode = [nn.Linear(E, E) for _ in range(3)], Recording()
    x = torch.randn(B, T, E)
    with torch.no_grad(), mode:
        out = function(*(layer(x) for layer in layers))
    return mode.lineage.of(out)


def heads(t, *order):
    return t.view(B, T, H, D).permute(*order)


SCORES = {
    "bhts": lambda q, k, v: heads(q, 0, 2, 1, 3) @ heads(k, 0, 2, 3, 1),
    "hbts": lambda q, k, v: heads(q, 2, 0, 1, 3) @ heads(k, 2, 0, 3, 1),
    "(hb)ts": lambda q, k, v: torch.cat(q.split(D, 2)) @ torch.cat(k.split(D, 2)).mT,
    "(bh)ts": lambda q, k, v: heads(q, 0, 2, 1, 3).reshape(-1, T, D) @ heads(k, 0, 2, 3, 1).reshape(-1, D, T),
    "bths": lambda q, k, v: torch.einsum("bthd,bshd->bths", heads(q, 0, 1, 2, 3), heads(k, 0, 1, 2, 3)),
    "b(th)s": lambda q, k, v: q.view(B, T * H, D) @ k[..., :D].mT,
    "b(ht)s": lambda q, k, v: heads(q, 0, 2, 1, 3).reshape(B, H * T, D) @ k[..., :D].mT,
}


@pytest.mark.parametrize("order", SCORES)
def test_the_axes_of_scores(order):
    step = run(SCORES[order])
    roles = roles_of_scores(step)
    assert roles.is_proven
    letters = order.replace("(", "").replace(")", "")
    named = torch.arange(B * H * T).view([{"b": B, "h": H, "t": T}[one] for one in letters[:-1]])
    expected = named.permute([letters.index(one) for one in "bht"])
    assert torch.equal(roles.plan.apply(named.reshape(*step.shape[:-1], 1))[..., 0], expected)


def test_keys_times_queries_are_scores_over_the_other_axis():
    step = run(lambda q, k, v: heads(k, 0, 2, 1, 3) @ heads(q, 0, 2, 3, 1))
    assert roles_of_scores(step, -2).plan.is_usual
    assert roles_of_scores(step, -1).plan.is_usual  # queries and keys of one text look alike


def test_a_plan_puts_texts_before_their_windows_and_heads_as_in_the_projection():
    plan = AxisPlan((AxisPart(3, "text", 5), AxisPart(2, "text", 15), AxisPart(4, "head", 7), AxisPart(5, "query", 1)))
    weights = torch.randn(3, 2, 4, 5, 11)
    assert torch.equal(plan.apply(weights), weights.transpose(0, 1).flatten(0, 1))
    assert plan.reorders
    assert plan.has_rows_last


def test_weights_between_features_are_named():
    step = run(lambda q, k, v: heads(q, 0, 2, 3, 1) @ heads(k, 0, 2, 1, 3))
    assert roles_of_scores(step).refusal == BETWEEN_FEATURES
    made = [run(lambda q, k, v, i=i: heads((q, k)[i], 0, 1, 2, 3)) for i in (0, 1)]
    assert roles_of_factors(*made).refusal == BETWEEN_FEATURES  # heads of one token attend to each other


def test_a_softmax_over_tokens_of_features_has_no_queries():
    assert has_features_as_rows(run(lambda q, k, v: k.mT))
    assert has_features_as_rows(run(lambda q, k, v: k * 2), keys=1)
    assert not has_features_as_rows(run(lambda q, k, v: k * 2))
    assert not has_features_as_rows(run(lambda q, k, v: q @ k.mT))


def test_scores_that_mix_tokens_and_products_that_do_not():
    assert mixes_tokens(run(lambda q, k, v: (q @ k.mT).sigmoid()), -1)
    assert not mixes_tokens(run(lambda q, k, v: k.mT @ v), -1)
    assert multiplies_keys_with_values(run(lambda q, k, v: (k.relu().mT @ v) / T))
    assert not multiplies_keys_with_values(run(lambda q, k, v: q @ k.mT))
    assert are_weights(run(lambda q, k, v: q @ k.mT), -1)
    assert not are_weights(run(lambda q, k, v: (q @ k.mT).softmax(-1) @ v), -1)
