"""Reading heads: what does a trained model look at?

A model of 6 layers with 8 heads each comes with regard. `watch` runs it on
a text and measures every head. seen[0, 2] is head 2 of layer 0 (both
counted from 0), and its numbers are tensors (1, T): one text, T tokens:

    seen[0, 2].previous    weight on the token before    NaN 1.0 .99 .99 …
    seen[0, 2].sink        weight on the first token     1.0 1.0 .00 .00 …

The first token has no token before it, so its `previous` is NaN.
Find the head that looks most at the token before, and the head that looks
most at the first token, by their mean over the text. Return two pairs
(layer, head). In the check, the heads of every layer stand in another order
each time: the model computes the same, and no number can be known by heart.
"""

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
    previous = ...  # (layer, head)
    first = ...  # (layer, head)
    return previous, first


def run(text, seed):
    """What reading_heads finds. The check calls this: leave it."""
    return reading_heads(watch(text, seed))


if __name__ == "__main__":
    text = "My uncle had bought this little house before I was born."
    print(watch(text, 0))
    print(run(text, 0))
