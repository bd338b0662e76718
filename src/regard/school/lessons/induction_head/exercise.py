"""Find the head that copies."""

import regard
import torch
from regard.school.exercises import Fault, Function, Judged, Wrong
from regard.school.exercises.shuffled import head_order, shuffled_tiny

LOOK_BEHIND = {(0, 2), (2, 1), (2, 7), (3, 2), (3, 5)}  # as the model was trained: at the token before, or its copy


def judge_twice(ids, n):
    if not isinstance(ids, torch.Tensor) or tuple(ids.shape) != (1, 2 * n) or ids.is_floating_point():
        shape = f"a tensor of shape {tuple(ids.shape)}" if isinstance(ids, torch.Tensor) else f"{type(ids).__name__}"
        return Fault("not (1, 2n) ids", f"twice({n}) returned {shape}; it must be (1, {2 * n}), of whole numbers.")
    if int(ids.min()) < 1 or int(ids.max()) > 4095:
        says = f"The ids go from {int(ids.min())} to {int(ids.max())}; the vocabulary has 1 to 4095 (0 ends a text)."
        return Fault("not in the vocabulary", says)
    first, second = ids[0, :n], ids[0, n:]
    steps = ids[0, :n].diff()
    if n > 2 and (steps == steps[0]).all() and first.equal(second):
        says = f"The tokens {int(ids[0, 0])}, {int(ids[0, 1])}, {int(ids[0, 2])} … follow a rule; draw them at random."
        why = "Tokens in order may be guessed without an earlier copy. Random ones cannot: only copying explains them."
        return Fault("not random", says, why=why)
    if ids.unique().numel() < n // 2:
        says = f"Only {ids.unique().numel()} different tokens occur. Draw each of the n at random."
        return Fault(
            "hardly random", says, why="Where a token has many earlier copies, which one should a head look at?"
        )
    if ids[0, 0::2].equal(ids[0, 1::2]):
        return Fault(
            "each token doubled",
            "Every token stands twice side by side, A A B B C C. The whole text comes twice: A B C A B C.",
            why="repeat_interleave repeats each in its place; here repeat is right, or cat.",
        )
    if not first.equal(second):
        return Fault("not the same twice", "The second half is not the first half again. Draw once, and use it twice.")
    return None


def drawn_seed(random):
    """A seed by which the pair of the right head, exchanged, is neither the same nor a head that looks behind."""
    seed = int(torch.randint(1, 10_000, (), generator=random))
    head = head_order(seed, 4, 8).index(3)
    exchanged = (head, head_order(seed, head, 8)[4])
    return drawn_seed(random) if head == 4 or exchanged in LOOK_BEHIND else seed


def some_ids(random):
    ids = 1 + torch.randperm(4095, generator=random)[:30]
    return ids.repeat(2)[None], [drawn_seed(random), drawn_seed(random)]


def on_each(run, ids, seeds):
    return [run(ids, seed) for seed in seeds]


def judge_heads(results, ids, seeds):
    """A pair may be the right one exchanged by chance, in one model of two."""
    faults = [judge_head(result, ids, seed) for result, seed in zip(results, seeds)]
    found = [one for one in faults if one is not None]
    return next((one for one in found if one.name != "head before layer"), found[0] if found else None)


def judge_head(result, ids, seed):
    model = shuffled_tiny(seed)
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    weight = {(one.layer, one.head): float(one.induction.nanmean()) for layer in seen for one in layer}
    best = max(weight, key=weight.get)
    try:
        layer, head = (int(one) for one in result)
    except (TypeError, ValueError):
        layer, head = -1, -1
    if (layer, head) == best:
        return None
    if (head, layer) == best:
        return Fault("head before layer", "The layer comes first in the pair, then the head.")
    if (layer, head) not in weight:
        return Fault("no such head", f"It returned {result!r}; return (layer, head), layers 0 to 5 and heads 0 to 7.")
    if (layer, head) == (best[0], head_order(seed, best[0], 8)[best[1]]):
        says = (
            "That is where the head is in the model as it was trained. Here the heads stand in another order: measure."
        )
        return Fault("known by heart", says)
    mine = seen[layer, head]
    name, many = f"{layer}.{head}", f"another head puts {weight[best]:.2f} there"
    if float(mine.previous.nanmean()) > 0.5:
        return Fault("previous token", f"Head {name} looks at the token before, not at the one after the earlier copy.")
    if float(mine.duplicate.nanmean()) > 0.4:
        return Fault(
            "the same token",
            f"Head {name} looks at the token itself, now or at its earlier place, not at the one after it.",
            why="To copy, a head needs what came next: the place i − n + 1.",
        )
    says = f"Head {name} puts {weight[layer, head]:.2f} of its weight on the token after the earlier copy; {many}."
    why = (
        "Did you try all 48 heads? Take the mean over the second copy only, and of weights[query, key]: "
        "the query comes first."
    )
    return Fault("not that head", says, why=why)


def i_and_n(random):
    n = int(torch.randint(5, 20, (), generator=random))
    return n + int(torch.randint(0, n, (), generator=random)), n


def thrice(twice, n):
    return [twice(n) for _ in range(3)]


def judge_range(texts, n):
    """With so many tokens, an id that may be drawn is drawn."""
    low, high = min(int(one.min()) for one in texts), max(int(one.max()) for one in texts)
    if low < 1 or high > 4095:
        says = f"Among many ids there is {low if low < 1 else high}; the vocabulary has 1 to 4095 (0 ends a text)."
        return Fault("not in the vocabulary", says, "torch.randint(low, high) draws low, and never high.")
    if texts[0].equal(texts[1]):
        says = "Two calls return the same text. Is a seed set inside?"
        return Fault("the same text again", says, "A head that copies must do so on any text.")
    return None


parts = [
    Judged("twice", lambda random: (int(torch.randint(20, 40, (), generator=random)),), judge_twice),
    Judged("twice", lambda random: (4000,), judge_range, runs=3, through=thrice),
    Function(
        "looked_at",
        i_and_n,
        lambda i, n: i - n + 1,
        wrong=[
            Wrong(
                "the same token",
                "Position {0} − {1} holds the same token. A head that copies looks at the one after it.",
                lambda i, n: i - n,
            ),
            Wrong("the token before", "This is the token before position {0}.", lambda i, n: i - 1),
            Wrong(
                "before the same token",
                "This is one before the earlier copy of the token; wanted is one after it.",
                lambda i, n: i - n - 1,
            ),
            Wrong(
                "the place in the copy",
                "n more than the place: that is a token that the head cannot see yet.",
                lambda i, n: i + 1,
            ),
            Wrong(
                "n less the place",
                "That is counted from the wrong side: n − i + 1; it is i − n + 1.",
                lambda i, n: n - i + 1,
            ),
            Wrong(
                "n more",
                "That is n places further on, where nothing has been read; the earlier copy is n places back.",
                lambda i, n: i + n + 1,
            ),
            Wrong("always the first", "That is position 0, whatever i is.", lambda i, n: 0),
        ],
    ),
    Judged("run", some_ids, judge_heads, through=on_each),
]
