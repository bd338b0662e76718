"""Find the induction head: the one that copies.

Random tokens read twice cannot be guessed, except in one way: look for the
same token earlier, and say what came after it.

    position    0  1  2  3    4  5  6  7       n = 4 tokens, read twice
    token       K  F  A  Q    K  F  A  Q
                   ↑─────────╯        at 4, a head that copies looks at 1,
                                      the token after the first K
Write `twice`, a text of this kind, (1, 2n) ids from 1 to 4095; `looked_at`,
the place where such a head looks from position i of the second copy; and
`induction_head`, which returns the (layer, head) with most weight there.
The model has 6 layers of 8 heads, which stand in another order at every
check; the weights of a head are seen[layer, head].weights()[0], (T, T).
"""

import regard
import torch
from regard.school.exercises.shuffled import shuffled_tiny


def twice(n):
    return ...  # (1, 2n)


def looked_at(i, n):
    return ...  # a position


def induction_head(model, ids):
    n = ids.shape[1] // 2
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    ...
    return ...  # (layer, head)


def run(ids, seed):
    """What induction_head finds. The check calls this: leave it."""
    return induction_head(shuffled_tiny(seed), ids)


if __name__ == "__main__":
    print(run(twice(30), seed=0))
