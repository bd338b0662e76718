"""Claims about heads: what could refute them."""

import math
from functools import lru_cache

import regard
import torch
from regard.school.exercises import Fault, Judged
from regard.school.exercises.shuffled import head_order, shuffled_tiny

STATISTICS = ("previous", "sink", "self", "duplicate", "induction")
PLAIN = (
    "The old man walked slowly down to his harbour, where three ships lay waiting for a better wind.",
    "Nobody spoke until morning came, and then our captain looked at his broken watch.",
)
TWICE = "The old man walked down to the harbour. The old man walked down to the harbour."


@lru_cache(maxsize=16)
def measured(text, seed=0):
    """Every statistic of every head on a text, by (layer, head) and name."""
    model = shuffled_tiny(seed)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode(text)]))
    heads = [(layer, head) for layer in range(6) for head in range(8)]
    return {(one, name): float(getattr(seen[one], name).nanmean()) for one in heads for name in STATISTICS}


def outcome(claim, numbers):
    if any(one < claim["least"] for one in numbers):
        return False
    return None if any(math.isnan(one) for one in numbers) else True


def a_claim(head, statistic, least, *texts):
    """A claim about a head of the model as it was trained, which stands elsewhere now."""

    def make(random):
        seed = int(torch.randint(1, 10_000, (), generator=random))
        place = head[0], head_order(seed, head[0], 8).index(head[1])
        return {"head": place, "statistic": statistic, "least": least}, list(texts), seed

    return make


def judge(result, claim, texts, seed):
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return Fault("run was changed", "run returns what was measured, and holds; it is given, leave it as it is.")
    mine, told = result
    head, name = tuple(claim["head"]), claim["statistic"]
    numbers = [measured(text, seed)[head, name] for text in texts]
    said = f"For {head[0]}.{head[1]} and {name}, measure gave {listed(mine)}; it is {listed(numbers)}."
    if any(math.isnan(a) and not math.isnan(b) for a, b in zip(mine, numbers, strict=True)):
        why = "The first token has no token before it, so its `previous` is NaN, and so is every mean with it."
        return Fault("mean of NaN", said, why)
    if any(math.isnan(b) and not math.isnan(a) for a, b in zip(mine, numbers, strict=True)):
        return Fault("NaN became a number", said + " Where nothing was measured, the result is NaN.")
    if not all(math.isclose(a, b, abs_tol=1e-4) or (a != a and b != b) for a, b in zip(mine, numbers, strict=True)):
        return Fault("another number", said + " The mean of the statistic, over the tokens where it is a number.")
    right = outcome(claim, numbers)
    if told is right or (isinstance(told, (bool, int)) and right is not None and bool(told) == right):
        return None
    called = f"{listed(numbers)} with least {claim['least']}: holds returned {told!r}; it is {right}."
    if right is None:
        why = "The text repeats nothing, so nothing was tested. Neither True nor False can be said."
        return Fault("untested counts as an outcome", called, why)
    if right is False and told is None:
        return Fault(
            "refuted is not untested", called, "One text is enough to refute a claim, whatever the others are."
        )
    if right is False:
        return Fault("one text is enough to refute", called, "The claim says: on every text.")
    return Fault("another outcome", called)


def judge_limit(result, claim, texts, seed):
    """One token puts all of its weight on the first: exactly the limit."""
    if result[1] is False:
        says = (
            "A head that reaches exactly the limit, 1.00 with least 1.0, is refuted; `least` is reached: one < least."
        )
        return Fault("the limit itself refuted", says)
    return judge(result, claim, texts, seed)


def listed(numbers):
    return ", ".join("NaN" if one != one else f"{one:.2f}" for one in numbers)


def judge_claim(claim):
    wanted = '{"head": (layer, head), "statistic": "…", "least": a number}'
    if not isinstance(claim, dict) or set(claim) != {"head", "statistic", "least"}:
        return Fault("not a claim", f"claim must be {wanted}.")
    head, name, least = (claim[key] for key in ("head", "statistic", "least"))
    if not isinstance(head, (tuple, list)) or tuple(head) not in {(i, j) for i in range(6) for j in range(8)}:
        return Fault("no such head", f"The head is {head!r}; layers are 0 to 5, and heads 0 to 7.")
    if name not in STATISTICS:
        return Fault("no such statistic", f"The statistic is {name!r}; it must be one of {', '.join(STATISTICS)}.")
    if not isinstance(least, (int, float)) or not 0 < least <= 1:
        return Fault("a limit that nothing reaches", f"least is {least!r}; these statistics go from 0 to 1.")
    numbers = [measured(PLAIN[0])[one, name] for one, which in measured(PLAIN[0]) if which == name]
    numbers = numbers if not math.isnan(numbers[0]) else [measured(TWICE)[one, name] for one, _ in measured(TWICE)]
    share = sum(one >= least for one in numbers) / len(numbers)
    if share > 0.5:
        says = f"{share:.0%} of all heads have {name} of {least} or more: the claim says nothing about this one."
        return Fault("true of most heads", says, "A claim is worth as much as it excludes. Ask for more.")
    return None


def judge_result(answer):
    claim, texts, told = answer
    if not isinstance(texts, (list, tuple)) or len(texts) != 2 or not all(isinstance(one, str) for one in texts):
        return Fault("not two texts", "texts must be a list of two texts.")
    if texts[0].strip() == texts[1].strip():
        return Fault("the same text twice", "The two texts are the same; a claim is tested by different ones.")
    if min(len(one.split()) for one in texts) < 5:
        return Fault("texts too short", "A text has fewer than 5 words; that measures chance.")
    numbers = [measured(one)[tuple(claim["head"]), claim["statistic"]] for one in texts]
    right = outcome(claim, numbers)
    if told is right:
        return None
    says = f"{listed(numbers)} with least {claim['least']}: the outcome is {right}, and `result` is {told!r}."
    return Fault("not what was measured", says, "What is measured counts, also where it refutes the claim.")


parts = [
    Judged("run", a_claim((0, 2), "previous", 0.5, *PLAIN), judge),
    Judged("run", a_claim((4, 3), "sink", 0.9, PLAIN[0], TWICE), judge),
    Judged("run", a_claim((4, 3), "induction", 0.3, TWICE, PLAIN[1]), judge),
    Judged("run", a_claim((0, 2), "induction", 0.3, TWICE, PLAIN[1]), judge),
    Judged("run", a_claim((4, 3), "sink", 1.0, "The"), judge_limit),
    Judged("claim", None, judge_claim),
    Judged("own", None, judge_result),
]
