"""Cut a head out, and see what breaks."""

import regard
import torch
import torch.nn.functional as F
from regard.school.exercises.shuffled import shuffled_tiny


def loss(model, ids):
    """The mean loss of predicting each next token; ids (T,)."""
    with torch.no_grad():
        logits = model(ids[None])[0]
    return F.cross_entropy(logits[:-1], ids[1:]).item()


def cost(model, head, ids):  # head: a pair (layer, head)
    before = loss(model, ids)
    with regard.cut(model, head):
        after = loss(model, ids)
    return after - before


def most_needed(model, heads, ids):
    losses = {}
    for head in heads:
        with regard.cut(model, head, to="mean"):
            losses[head] = loss(model, ids)
    return max(losses, key=losses.get)


def run(head, heads, ids, seed):
    """Both answers for one model. The check calls this: leave it."""
    model, head, heads = shuffled_tiny(seed), tuple(head), list(map(tuple, heads))
    return cost(model, head, ids), most_needed(model, heads, ids)


# A head costs 4 to 5 when it is cut to 0, and less than 0.5 when it is cut to
# its mean. So
#   "a"  it copies, as the induction head does
#   "b"  it hands over nearly the same vector at every token, and later layers
#        rely on that vector
#   "c"  it does nothing
same_everywhere = "b"
