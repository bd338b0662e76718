"""Reading heads: what does a trained model look at?

A model of 6 layers with 8 heads each comes with regard. `watch` runs it on
a text and measures every head. seen[0, 2] is head 2 of layer 0 (both
counted from 0), and its numbers are tensors with one entry for each token:

    seen[0, 2].previous    weight on the token before    NaN 1.0 .99 .99 …
    seen[0, 2].sink        weight on the first token     1.0 1.0 .00 .00 …

The first token has no token before it, so its `previous` is NaN.
Find the head that looks most at the token before, and the head that looks
most at the first token, by their mean over the text. Return two pairs
(layer, head). `regard see` prints such numbers for all heads.
"""

import regard
import torch


def watch(text):
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(text)])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    return seen


def reading_heads(text):
    seen = watch(text)
    previous = ...  # (layer, head)
    first = ...  # (layer, head)
    return previous, first


if __name__ == "__main__":
    text = "My uncle had bought this little house before I was born."
    print(watch(text))
    print(reading_heads(text))
