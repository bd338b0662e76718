"""Reading the heads of a model."""

from functools import cache

import regard
import torch
from regard.school.exercises import Fault, Judged
from regard.school.exercises.shuffled import head_order, shuffled_tiny

# No word occurs twice in any of them, so no head has anything to copy.
TEXTS = (  # in none does the second token alone tell which head looks at the first
    "The old man walked slowly down to his harbour, where three ships lay waiting for a better wind.",
    "Nobody spoke until morning came, and then our captain looked at his broken watch.",
    "Nobody had lived in that house since the old man died, but a light burned there.",
    "When the train stopped, nobody got out, and the station was quiet as a church.",
)


def arguments(random):
    text = TEXTS[int(torch.randint(len(TEXTS), (), generator=random))]
    while True:  # until "exchanged" and "head before layer" are different answers
        seed = int(torch.randint(1, 10_000, (), generator=random))
        one, two = (max(means, key=means.get) for means in measured(text, seed))
        if one != two[::-1]:
            return text, seed


@cache
def measured(text, seed):
    """The mean weight on the token before and on the first token, for every head."""
    model = shuffled_tiny(seed)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode(text)]))
    heads = [head for layer in seen for head in layer]
    names = [(head.layer, head.head) for head in heads]
    previous = dict(zip(names, (float(head.previous.nanmean()) for head in heads), strict=True))
    first = dict(zip(names, (float(head.sink.mean()) for head in heads), strict=True))
    return previous, first


def judge(result, text, seed):
    previous, first = measured(text, seed)
    best = max(previous, key=previous.get), max(first, key=first.get)
    try:
        given = tuple((int(layer), int(head)) for layer, head in result)
    except (TypeError, ValueError):
        given = ()
    if given == best:
        return None
    if given == tuple(head[::-1] for head in best):
        return Fault("head before layer", "The layer comes first in a pair, then the head.")
    if len(given) != 2 or not all(head in previous for head in given):
        says = f"It returned {result!r}; return two pairs (layer, head), with layers 0 to 5 and heads 0 to 7."
        return Fault("not two heads", says)
    known = [(layer, head_order(seed, layer, 8)[head]) for layer, head in best]
    if any(mine == known[i] for i, mine in enumerate(given)) and all(
        mine in (known[i], best[i]) for i, mine in enumerate(given)
    ):
        return Fault(
            "known by heart",
            "That is where the head is in the model as it was trained. Here the heads stand in another order: measure.",
        )
    if given == best[::-1]:
        return Fault("exchanged", "The right two heads, in the other order: the one for the token before comes first.")
    if given[0] == (0, 0) and previous[0, 0] < 0.5:
        return Fault(
            "mean of NaN",
            f"Head 0.0 puts only {previous[0, 0]:.2f} of its weight on the token before. Is your mean NaN?",
            why="`previous` of the first token is NaN, and so is every mean with it; nothing compares with NaN. "
            "nanmean() leaves it out. (It is of shape (1, T), so without its first token it is previous[:, 1:].)",
        )
    for mine, wanted, weight, what in zip(given, best, (previous, first), ("token before", "first token"), strict=True):
        if mine != wanted:
            return Fault(
                f"not the {what}",
                f"Head {mine[0]}.{mine[1]} puts {weight[mine]:.2f} of its weight on the {what}, on average; "
                f"another head puts {weight[wanted]:.2f} there.",
            )
    return None


parts = [Judged("run", arguments, judge, runs=2)]
