"""Cut a head out: what breaks?."""

from functools import cache

import regard
import torch
import torch.nn.functional as F
from regard.school.exercises import Fault, Judged, Question, Wrong
from regard.school.exercises.shuffled import head_order, shuffled_tiny

# Without the induction head, 4.3: then 2.1 costs most when it is cut to 0, and 0.2 when it is cut to its mean.
ALWAYS = ((0, 2), (2, 1), (2, 4))
CUT = ((4, 3), (0, 2), (5, 6))


@cache
def model(seed):
    return shuffled_tiny(seed)


def drawn_seed(random):
    """A seed by which no head that is cut has the number of its layer: exchanged, such a pair would be right."""
    seed = int(torch.randint(1, 10_000, (), generator=random))
    return seed if all(place(one, seed)[1] != one[0] for one in CUT) else drawn_seed(random)


def arguments(random):
    seed = drawn_seed(random)
    right = place((0, 2), seed)
    others = {divmod(int(i), 8) for i in torch.randperm(48, generator=random)[:4]} - {(4, 3)}
    others |= {(0, int(i)) for i in torch.randperm(8, generator=random)[:2]}
    others = {one for one in others if place(one, seed) != (4, 3)}  # a place that is known by heart
    known = [place(one, seed) for one in sorted({*ALWAYS, *others})]
    heads = [known[i] for i in torch.randperm(len(known), generator=random).tolist()]
    costliest = place((2, 1), seed)  # when it is cut to 0
    rest = [one for one in heads if one not in (right, costliest)]
    heads = [rest[0], costliest, right, *rest[1:]]  # neither is the first or the last
    cut = place(CUT[int(torch.randint(2, (), generator=random))], seed)
    while True:  # until it is not the one, too, that costs least when it is cut to its mean
        ids = (1 + torch.randperm(4095, generator=random)[:32]).repeat(2)
        if min(heads, key=lambda one: loss(seed, ids, one, to="mean")) != costliest:
            return cut, heads, ids, seed


def spared(random):
    """A text that repeats nothing, and a head without which its loss is smaller."""
    seed = drawn_seed(random)
    heads = [place(one, seed) for one in CUT[:0:-1]]
    while True:
        ids = 1 + torch.randperm(4095, generator=random)[:64]
        if loss(seed, ids, heads[0]) < loss(seed, ids) - 0.005:
            return heads[0], heads, ids, seed


def place(head, seed):
    """Where a head of the model as it was trained stands now."""
    return head[0], head_order(seed, head[0], 8).index(head[1])


def loss(seed, ids, *heads, to=0):
    with torch.no_grad(), regard.cut(model(seed), list(heads), to=to):
        logits = model(seed)(ids[None])[0]
    return F.cross_entropy(logits[:-1], ids[1:]).item()


def judge(result, head, heads, ids, seed):
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return Fault("run was changed", "run returns cost and most_needed; it is given, leave it as it is.")
    return judge_cost(result[0], tuple(head), ids, seed) or judge_needed(result[1], heads, ids, seed)


def judge_sign(result, head, heads, ids, seed):
    return judge_cost(result[0], tuple(head), ids, seed)


def judge_cost(result, head, ids, seed):
    try:
        value = float(result)
    except (TypeError, ValueError):
        return Fault("no number", f"cost returned {type(result).__name__}; it is a number, a difference of two losses.")
    before, after, name = loss(seed, ids), loss(seed, ids, head), f"{head[0]}.{head[1]}"
    if abs(value - (after - before)) < 1e-3:
        return None
    layer = [(head[0], other) for other in range(8)]
    explained = {
        "without the sign": (
            abs(after - before),
            "cut, this head costs less than nothing, and the sign says so: loss with the cut less loss without.",
        ),
        "the other way round": (before - after, "it is the loss with the cut less the loss without, not the reverse."),
        "loss while cut": (after, "this is the loss with the cut; subtract the loss without it."),
        "loss without a cut": (before, "this is the loss of the whole model; nothing is cut, or nothing subtracted."),
        "nothing cut": (
            0.0,
            "the two losses are one: both of the whole model, both of the cut one, or another head was cut.",
        ),
        "share of the loss": (
            after / before - 1,
            "this is the difference divided by the loss; wanted is the difference.",
        ),
        "ratio": (after / before, "this is how many times as large the loss is; wanted is the difference."),
        "whole layer": (loss(seed, ids, *layer) - before, f"all heads of layer {head[0]} are cut."),
        "cut to its mean": (loss(seed, ids, head, to="mean") - before, "the head hands over its mean; it should be 0."),
    }
    if head[1] < 6:
        swapped = loss(seed, ids, head[::-1]) - before
        explained["head and layer exchanged"] = (swapped, "the layer comes first in the pair, then the head.")
    why = "A cut acts while its `with` block runs: one loss inside, one outside."
    for fault, (number, says) in explained.items():
        if abs(value - number) < 1e-3:
            return Fault(fault, f"cost of head {name} is {value:.2f}: {says}", why)
    says = f"cost of head {name} is {value:.2f}. The loss is {before:.2f} without the cut, and {after:.2f} with it."
    return Fault("another cost", says, why)


def judge_needed(result, heads, ids, seed):
    heads = [tuple(one) for one in heads]
    try:
        layer, head = (int(one) for one in result)
    except (TypeError, ValueError):
        layer, head = -1, -1
    if (layer, head) not in heads:
        says = f"most_needed returned {result!r}, which is none of `heads`; return one of them, a pair (layer, head)."
        return Fault("not of the list", says)
    before = loss(seed, ids)
    cost = {one: loss(seed, ids, one, to="mean") - before for one in heads}
    best = max(cost, key=cost.get)
    if (layer, head) == best:
        return None
    says = (
        f"Cut head {layer}.{head} to its mean, and the loss grows by {cost[layer, head]:.1f}; with another of them by "
    )
    says += f"{cost[best]:.1f}."
    if (layer, head) == max(heads, key=lambda one: loss(seed, ids, one)):
        why = "Cut to 0, a head also loses what it says at every token. The question below is about that."
        return Fault("cut to 0", says + ' This one costs most where it is cut to 0; use to="mean".', why)
    if (layer, head) == min(cost, key=cost.get):
        return Fault("the least needed", says + " This is the head that costs least: max, or sorted the other way.")
    return Fault("not that head", says)


failing = [
    Wrong("not a pair", "A head is given as one pair: regard.cut(model, head).", raises="positional argument"),
    Wrong(
        "never run", "Nothing was computed inside the `with` block, so nothing could be cut.", raises="was not called"
    ),
]
parts = [
    Judged("run", arguments, judge, wrong=failing),
    Judged("run", spared, judge_sign),
    Question(
        "same_everywhere",
        right="b",
        because={
            "a": "Whatever it found at one token is gone when it hands over its mean. A copying head would cost much then.",
            "c": "Then cutting it to 0 would cost nothing either.",
        },
    ),
]
