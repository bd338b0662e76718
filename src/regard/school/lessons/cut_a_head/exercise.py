"""Cut a head out: what breaks?."""

from functools import cache

import regard
import torch
import torch.nn.functional as F
from regard.school.exercises import Fault, Function, Judged, Question, Wrong


@cache
def model():
    return regard.GPT.from_pretrained("tiny")


def random_twice(random):
    ids = 1 + torch.randperm(4095, generator=random)[:32]
    return ids.repeat(2)


def arguments(random):
    layer, head = ((4, 3), (0, 2))[int(torch.randint(2, (), generator=random))]
    return layer, head, random_twice(random)


def loss(ids, *heads):
    with torch.no_grad(), regard.cut(model(), list(heads)):
        logits = model()(ids[None])[0]
    return F.cross_entropy(logits[:-1], ids[1:]).item()


def ids_and_heads(random):
    others = [divmod(int(i), 8) for i in torch.randperm(48, generator=random)[:4]]
    heads = {(0, 2), (2, 1), (2, 4), (4, 3), *others}
    return random_twice(random), sorted(heads)


def judge(result, ids, heads):
    heads = [tuple(one) for one in heads]
    try:
        layer, head = (int(one) for one in result)
    except (TypeError, ValueError):
        layer, head = -1, -1
    if (layer, head) not in heads:
        return Fault("not of the list", f"It returned {result!r}; return one of `heads`, a pair (layer, head).")
    effects = regard.effect(model(), ids, heads=heads, to="mean")
    best = effects.order()[0]
    if (layer, head) == best.heads[0]:
        return None
    mean = effects[layer, head].loss
    says = f"Without head {layer}.{head} the loss grows by {mean:.1f}; without another head by {best.loss:.1f}."
    if mean < 0.5 and loss(ids, (layer, head)) - loss(ids) > 2:
        return Fault(
            "cut to 0",
            says + ' This one costs much only where it is cut to 0; use to="mean".',
            why="Cut to 0, a head also loses what it says at every token. The question below is about that.",
        )
    return Fault("not that head", says)


parts = [
    Function(
        "cost",
        arguments,
        lambda layer, head, ids: loss(ids, (layer, head)) - loss(ids),
        wrong=[
            Wrong(
                "the other way round",
                "The cost is negative: it is the loss with the cut less the loss without.",
                lambda layer, head, ids: loss(ids) - loss(ids, (layer, head)),
            ),
            Wrong(
                "loss while cut",
                "This is the loss with the cut; subtract the loss without it.",
                lambda layer, head, ids: loss(ids, (layer, head)),
            ),
            Wrong(
                "ratio",
                "This is how many times as large the loss is; wanted is the difference.",
                lambda layer, head, ids: loss(ids, (layer, head)) / loss(ids),
            ),
            Wrong(
                "nothing cut",
                "The cost is 0: both losses come from the whole model, or both from the cut one.",
                lambda layer, head, ids: 0.0,
                why="A cut acts while its `with` block runs. One loss inside, one outside.",
            ),
            Wrong(
                "whole layer",
                "All heads of layer {0} are cut; cut head {1} of it only.",
                lambda layer, head, ids: loss(ids, *((layer, other) for other in range(8))) - loss(ids),
            ),
            Wrong(
                "cut to its mean",
                "The head hands over its mean here; `cost` is with the plain cut, to 0.",
                lambda layer, head, ids: (
                    regard.effect(model(), ids, heads=[(layer, head)], to="mean")[layer, head].loss
                ),
            ),
            Wrong(
                "head and layer exchanged",
                "Head {0} of layer {1} is cut; the layer comes first in the pair.",
                lambda layer, head, ids: loss(ids, (head, layer)) - loss(ids),
            ),
            Wrong(
                "not a pair",
                "A head is given as a pair: regard.cut(model, (layer, head)).",
                raises="positional argument",
            ),
            Wrong(
                "never run",
                "Nothing was computed inside the `with` block, so nothing could be cut.",
                raises="was not called",
            ),
        ],
        tolerance=1e-3,
        runs=1,
    ),
    Judged("most_needed", ids_and_heads, judge),
    Question(
        "head_2_1",
        right="b",
        because={
            "a": "Whatever it found at one token is gone when it hands over its mean. A copying head would cost much then, as 4.3 does.",
            "c": "Then cutting it to 0 would cost nothing either.",
        },
    ),
]
