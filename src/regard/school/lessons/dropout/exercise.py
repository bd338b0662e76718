"""Dropout on the weights."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Fault, Judged


NORMAL = {0.2: 0.579, 0.3: 0.618}  # the share of a normal distribution that is below p


def weights_and_p(random, training):
    weights = torch.randn(40, 40, generator=random).softmax(-1)
    p = 0.2 if torch.rand((), generator=random) < 0.5 else 0.3
    return weights, p, training


def same(a, b):
    return torch.allclose(a, b, rtol=1e-4, atol=0.0)


def unlike(result, weights):
    """A fault if the result cannot be compared with the weights."""
    if not isinstance(result, torch.Tensor):
        return Fault("no tensor", "The result is not a tensor; return the weights, some of them 0.")
    if result.shape != weights.shape:
        return Fault("shape", f"The result has shape {tuple(result.shape)}, the weights {tuple(weights.shape)}.")
    return None


def judge_training(result, weights, p, training):
    fault = unlike(result, weights)
    if fault:
        return fault
    if result.dtype == torch.bool:
        return Fault("mask returned", "The result is the mask itself; multiply the weights by it.")
    kept = result != 0
    dropped = 1 - kept.float().mean().item()
    if dropped == 1 or (dropped == 0 and same(result[0, 0], weights[0, 0] / (1 - p))):
        return Fault(
            "all or none",
            f"{'All' if dropped else 'None'} of the weights are 0, as if one random number, or the weights' "
            f"sizes, decided.",
            "Each weight is dropped independently: the random numbers need the shape of the weights.",
        )
    if dropped == 0:
        return Fault("nothing dropped", f"In training with p = {p} no weight is 0.")
    if kept.all(1).logical_or(~kept.any(1)).all():
        return Fault(
            "whole rows",
            "Every row is dropped or kept as a whole.",
            "Each weight is dropped independently: the random numbers need the shape of the weights.",
        )
    if (kept == kept[0]).all():
        return Fault(
            "the same keys for every query",
            "All rows have their zeros in the same columns.",
            "Each weight is dropped independently: the random numbers need the shape of the weights.",
        )
    if abs(dropped - NORMAL[p]) < 0.04:
        return Fault(
            "randn instead of rand",
            f"With p = {p}, {dropped:.0%} of the weights are 0: as many as random numbers of torch.randn are below p.",
            "torch.rand_like gives numbers between 0 and 1, and the share p of them is below p; randn gives others.",
        )
    if abs(dropped - (1 - p)) < 0.05:
        return Fault(
            "kept and dropped swapped",
            f"With p = {p}, {dropped:.0%} of the weights are 0: kept and dropped are swapped.",
            "p is the probability of being dropped. A random number is below p with probability p.",
        )
    if abs(dropped - p) > 0.08:
        return Fault("share", f"With p = {p}, {dropped:.0%} of the weights are 0.")
    result, weights = result.double(), weights.double()
    if same(result[kept], weights[kept] / (1 - p)):
        return None
    if same(result[kept], weights[kept]):
        return Fault(
            "not scaled",
            f"The weights that are left are not scaled up: their sum falls to about {1 - p:.1f}.",
            f"Divided by 1 − p = {1 - p:.1f} the sum of a row stays 1 on average, as it is without dropout.",
        )
    if same(result[kept], weights[kept] / p):
        return Fault("divided by p", "The rest is divided by p; divide by 1 − p, the share that is kept.")
    if same(result[kept], weights[kept] * (1 - p)):
        return Fault("multiplied by 1 − p", "The rest is multiplied by 1 − p, and gets even smaller; divide by it.")
    if same(result.sum(1), torch.ones(len(result), dtype=torch.double)):
        return Fault(
            "rows divided by their sum",
            "Each row is divided by what is left of it, so that it adds up to exactly 1.",
            "Dropout divides by 1 − p, the same for all. Otherwise its neighbours make up for a lost weight.",
        )
    return Fault("scale", "The weights that are left are not the old ones divided by 1 − p.")


def twice(dropout, weights, p, training):
    """Two results."""
    return dropout(weights, p, training), dropout(weights, p, training)


def judge_again(results, weights, p, training):
    first, second = results
    if (first == 0).equal(second == 0):
        return Fault(
            "the same draw again", "Two calls drop the same weights. Is a seed set inside?", "Draw anew each time."
        )
    return None


def judge_use(result, weights, p, training):
    fault = unlike(result, weights)
    if fault:
        return fault
    if (result == 0).any():
        return Fault(
            "dropout outside training",
            "With training=False weights are dropped too.",
            "Then the same text gives another answer each time. Forgetting model.eval() has this effect.",
        )
    if same(result, weights):
        return None
    if same(result, weights * (1 - p)) or same(result, weights / (1 - p)):
        return Fault(
            "scaled outside training",
            "With training=False the weights are scaled; they stay as they are.",
            "The division by 1 − p in training makes up for what is dropped, so nothing is left to do later.",
        )
    return Fault("changed outside training", "With training=False the weights come back changed.")


without = dict.fromkeys(
    ("dropout", "Dropout", "dropout_", "feature_dropout"), "Write it with random numbers, this once."
)
parts = [
    Judged("dropout", lambda random: weights_and_p(random, True), judge_training),
    Judged("dropout", lambda random: weights_and_p(random, True), judge_again, through=twice),
    Judged("dropout", lambda random: weights_and_p(random, False), judge_use),
]

picture = cat.of_result(
    "dropout",
    "Your dropout in training, p = 0.3: some weights are gone, the others larger:",
    cat.scores().masked_fill(torch.ones(6, 6).triu(1) > 0, -torch.inf).softmax(-1),
    0.3,
    True,
)
