# named: nothing cut
"""Cut a head out, and see what breaks."""

import regard
import torch
import torch.nn.functional as F


def loss(model, ids):
    """The mean loss of predicting each next token; ids (T,)."""
    with torch.no_grad():
        logits = model(ids[None])[0]
    return F.cross_entropy(logits[:-1], ids[1:]).item()


def cost(layer, head, ids):
    model = regard.GPT.from_pretrained("tiny")
    before = loss(model, ids)
    with regard.cut(model, (layer, head)):
        model(ids[None])
    after = loss(model, ids)
    return after - before


def most_needed(ids, heads):
    model = regard.GPT.from_pretrained("tiny")
    effects = regard.effect(model, ids, heads=heads, to="mean")
    return effects.order()[0].heads[0]


# Cut to 0, head 2.1 costs 4 to 5 on such a text. Cut to its mean, it costs
# less than 0.5. Then
#   "a"  it copies, like 4.3
#   "b"  it hands over nearly the same vector at every token, and later layers
#        rely on that vector
#   "c"  it does nothing
head_2_1 = "b"
