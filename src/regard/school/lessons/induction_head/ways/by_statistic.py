"""Find the induction head: the one that copies."""

import regard
import torch


def twice(n):
    return torch.randint(1, 4096, (1, n)).repeat(1, 2)


def looked_at(i, n):
    return i - n + 1


def induction_head(ids):
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    best = seen.heads(by="induction")[0]
    return best.layer, best.head


if __name__ == "__main__":
    print(induction_head(twice(30)))
