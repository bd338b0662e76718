"""Claims about heads: what does the measurement say?

Many texts say it: "head 1 is grammar, head 2 is meaning, head 3 is long
range; more heads are richer". Run this file (python FILE). It prints what
was measured on the trained model that comes with regard. Then answer, with
the numbers before you.
"""

import regard
import torch

TEXT = (
    "The old man walked slowly down to the harbour, where three ships lay waiting "
    "for a better wind. Nobody spoke until morning came, and then our captain looked "
    "at his broken watch. My uncle had bought this little house before I was born."
)

# Line 1 prints what head 1 of each layer does. "Head 1 is grammar":
#   "a"  holds in every layer      "b"  the number of a head says nothing
#   "c"  holds in the first layer
head_1 = ...  # a letter in quotes, such as "a"

# Line 2 counts the roles of all 48 heads. Which role do most of them have?
commonest = ...  # the name of a role, in quotes

# The heads of a layer change places, with their weights. The model gives
#   "a"  other logits    "b"  the same logits
#   "c"  the same, after more training
reordered = ...

# Line 3 cuts every head to its mean, one at a time. Of how many of the 48
# does the absence cost more than 0.5 of loss per token?
costly = ...  # a number

# So what may be said of "more heads are richer"?
#   "a"  true: each of the 48 heads does its own share
#   "b"  false: all heads that cost less can be removed together without harm
#   "c"  not by their number alone: on this text most heads cost little when
#        they are cut alone, perhaps because others do part of the same
richer = ...

if __name__ == "__main__":
    model = regard.GPT.from_pretrained("tiny")
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode(TEXT)]))
    roles = [[head.role.name for head in layer] for layer in seen]
    print("1  head 1 of each layer:", [layer[1] for layer in roles])
    print("2  all heads:", {role: sum(roles, []).count(role) for role in sum(roles, [])})
    effects = regard.effect(model, TEXT, to="mean").order()
    print("3  cost:", [f"{one.name} {one.loss:.2f}" for one in effects])
