"""Reading heads: what does a trained model look at?"""

import regard
import torch
from regard.school.exercises.shuffled import shuffled_tiny


def watch(text, seed):
    model = shuffled_tiny(seed)  # 0: the heads as they were trained
    ids = torch.tensor([model.tokenizer.encode(text)])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    return seen


def reading_heads(seen):
    heads = [(layer, head) for layer in range(6) for head in range(8)]
    previous = max(heads, key=lambda head: seen[head].previous.nanmean())
    first = max(heads, key=lambda head: seen[head].sink.mean())
    return previous, first


def run(text, seed):
    """What reading_heads finds. The check calls this: leave it."""
    return reading_heads(watch(text, seed))


if __name__ == "__main__":
    text = "My uncle had bought this little house before I was born."
    print(watch(text, 0))
    print(run(text, 0))
