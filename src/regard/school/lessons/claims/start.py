"""Claims about heads: say one, and write what could refute it.

"Head 1 is grammar, head 2 is meaning": many texts say so, and nobody can be
proved wrong. A claim that can fail names the head, a number that is
measured, and a limit, and holds on every text or does not:

    {"head": (0, 2), "statistic": "previous", "least": 0.5}
    on every text, head 0.2 puts half of its weight on the token before

statistic: previous, sink, self, duplicate or induction. It is NaN where it
cannot be: a text that repeats nothing has no induction. Then the claim was
not tested, and that is not the same as true.

1. measure: the mean of the statistic over the tokens, without NaN.
2. holds: False if one text refutes the claim, else None if one was no test,
   else True.
3. A claim of your own, two texts, and what came out (python FILE).
"""

import regard
import torch
from regard.school.exercises.shuffled import shuffled_tiny


def measure(seen, claim):
    values = getattr(seen[claim["head"]], claim["statistic"])  # (1, T): one per token
    return ...  # a number, or NaN


def holds(claim, measured):  # measured: a number for each text
    return ...  # False, None or True


claim = ...  # {"head": …, "statistic": …, "least": …}; not every head meets it
texts = ...  # [one, another]
result = ...  # what print shows: False, None or True
own = claim, texts, result


def run(claim, texts, seed):
    """measure and holds for texts. The check calls this: leave it."""
    model, measured = shuffled_tiny(seed), []
    for text in texts:
        with torch.no_grad(), regard.watch(model) as seen:
            model(torch.tensor([model.tokenizer.encode(text)]))
        asked = {**claim, "head": tuple(claim["head"])}
        measured.append(float(measure(seen, asked)))
    return measured, holds(claim, measured)


if __name__ == "__main__":
    print(run(claim, texts, seed=0))
