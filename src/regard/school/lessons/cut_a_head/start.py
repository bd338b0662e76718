"""Cut a head out, and see what breaks.

Watching says where a head looks. Cutting says whether the model needs it:

    with regard.cut(model, (4, 3)):              # hands over 0 instead
    with regard.cut(model, (4, 3), to="mean"):   # the same at every token:
        ...                                      # its mean over the text

On random tokens read twice, the loss per token about doubles when head 4.3
is cut. Write `cost`: the loss with a head cut (to 0) less the loss without.
Then `most_needed`: of some heads, the one that costs most when it is cut to
its mean. A loop will do. (`regard.effect(model, ids, heads=heads, to="mean")`
makes these cuts, too: of its result, .order()[0].heads[0] is the first.)
Last, a question. Heads stand in another order at every check.
"""

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
    return ...


def most_needed(model, heads, ids):
    return ...  # one of heads


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
same_everywhere = ...  # a letter in quotes, such as "a"
