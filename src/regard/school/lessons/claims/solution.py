"""Claims about heads: say one, and write what could refute it."""

import regard
import torch
from regard.school.exercises.shuffled import shuffled_tiny


def measure(seen, claim):
    values = getattr(seen[claim["head"]], claim["statistic"])  # (1, T): one per token
    return values.nanmean()


def holds(claim, measured):  # measured: a number for each text
    if any(one < claim["least"] for one in measured):
        return False
    return None if any(one != one for one in measured) else True


claim = {"head": (4, 3), "statistic": "sink", "least": 0.7}
texts = ["My uncle had bought this house.", "one two three four one two three four"]
result = False
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
