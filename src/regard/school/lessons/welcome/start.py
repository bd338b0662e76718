"""Welcome. This file is complete: it passes as it is.

Every exercise is one file like this: the task at the top, the code below it.
`regard learn` shows the next one, and checks it each time you save.
In later files `...` marks what is missing; you replace it, in any style.
A known mistake is named, with numbers that your own code computed.
Stuck? `regard learn hint` gives three hints; each says more.
After success: an explanation, and two other ways to write it.
Stop whenever you like; `regard learn` goes on where you stopped.

Two things to look at here:
1. VECTORS: six words, each a row of three numbers. They come back often.
2. What a wrong answer looks like: write 0.88 for 0.89, save, undo, save.
"""

import torch

WORDS = ["Your", "journey", "starts", "with", "one", "step"]
VECTORS = torch.tensor(
    [
        [0.43, 0.15, 0.89],  # Your
        [0.55, 0.87, 0.66],  # journey
        [0.57, 0.85, 0.64],  # starts
        [0.22, 0.58, 0.33],  # with
        [0.77, 0.25, 0.10],  # one
        [0.05, 0.80, 0.55],  # step
    ]
)


def vector_of(word):
    return VECTORS[WORDS.index(word)]  # (3,)
