# named: the same token
"""Find the induction head: the one that copies."""

import regard
import torch


def twice(n):
    ids = torch.randint(1, 4096, (1, n))
    return torch.cat([ids, ids], dim=1)


def looked_at(i, n):
    return i - n


def induction_head(ids):
    n = ids.shape[1] // 2
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    queries = torch.arange(n, 2 * n)
    best = {}
    for layer in range(6):
        for head in range(8):
            weights = seen[layer, head].weights()[0]
            best[layer, head] = weights[queries, looked_at(queries, n)].mean()
    return max(best, key=best.get)


if __name__ == "__main__":
    print(induction_head(twice(30)))
