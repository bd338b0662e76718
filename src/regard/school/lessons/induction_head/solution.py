"""Find the induction head: the one that copies."""

import regard
import torch
from regard.school.exercises.shuffled import shuffled_tiny


def twice(n):
    ids = torch.randint(1, 4096, (1, n))
    return torch.cat([ids, ids], dim=1)


def looked_at(i, n):
    return i - n + 1


def induction_head(model, ids):
    n = ids.shape[1] // 2
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    queries = torch.arange(n, 2 * n)
    best = {}
    for layer in range(6):
        for head in range(8):
            weights = seen[layer, head].weights()[0]
            best[layer, head] = weights[queries, looked_at(queries, n)].mean()
    return max(best, key=best.get)


def run(ids, seed):
    """What induction_head finds. The check calls this: leave it."""
    return induction_head(shuffled_tiny(seed), ids)


if __name__ == "__main__":
    print(run(twice(30), seed=0))
