"""Why scale? Measure it."""

import torch

from regard.school.exercises import Fault, Judged, Question


def judge(result, head_dim):
    if torch.as_tensor(result).numel() != 1:
        shape = tuple(torch.as_tensor(result).shape)
        return Fault("not one number", f"The result has shape {shape}; the variance is one number.")
    value = float(result)
    at = f"At head_dim = {head_dim} the result is"

    def near(expected):
        return abs(value - expected) < (0.12 if head_dim > 4 else 0.2) * expected

    if value == head_dim:
        return Fault("not measured", f"{at} exactly {head_dim}: no measurement with random numbers is that exact.")
    if near(head_dim):
        return None
    if near(1):
        return Fault(
            "1 at every width",
            f"{at} {value:.2f}. It must grow with head_dim: are products added up, and not scaled yet?",
            "A score is a sum of head_dim products; measure its variance before any scaling.",
        )
    if near(head_dim**0.5):
        return Fault(
            "standard deviation",
            f"{at} {value:.2f}: this is the standard deviation, the square root of the variance.",
        )
    if near(2 * head_dim):
        return Fault(
            "twice as large",
            f"{at} {value:.1f}: twice as large as it should be, as for queries that meet themselves, or for sums "
            f"q + k.",
            "The keys are random numbers of their own, and a score is a sum of products.",
        )
    if near(1 / head_dim):
        return Fault(
            "averaged, not added up",
            f"{at} {value:.3f}, about 1/{head_dim}: the products of a pair are averaged, not added up.",
            "A score is the sum of head_dim products. Their mean is head_dim times smaller, its variance "
            "head_dim² times.",
        )
    if near(head_dim / 3):
        return Fault(
            "about a third",
            f"{at} {value:.1f}, about a third of it, as with keys from torch.rand, or scores without signs.",
            "torch.rand gives numbers between 0 and 1; torch.randn gives mean 0 and variance 1.",
        )
    if near(head_dim * 7 / 144):
        return Fault(
            "rand instead of randn",
            f"{at} {value:.2f}: too small, as if the numbers came from torch.rand.",
            "torch.rand gives numbers between 0 and 1; torch.randn gives mean 0 and variance 1.",
        )
    if value > 10 * head_dim:
        return Fault(
            "added up along the wrong axis",
            f"{at} {value:.0f}, far too large: more than head_dim products were added up for a score.",
            "There are 2000 scores, one for each pair. Each is a sum along the last axis, dim=-1.",
        )
    if abs(value) < 0.1 * head_dim**0.5:
        shown = f"{value:.2f}".replace("-", "−")
        says = f"{at} {shown}, around 0: so is the mean of the scores, and the variance of weights after a softmax."
        return Fault("around 0", f"{says} Use var(), of the raw scores.")
    return Fault(
        "something else",
        f"{at} {value:.2f}. Is there one score for each of 2000 pairs, and are they sums of products?",
    )


def judge_second(result, head_dim):
    """At 64, once 1024 gave 1024, or about twice as much."""
    value = float(result)
    return None if abs(value - head_dim) < 0.2 * head_dim else _wrong_again(value, head_dim)


def _wrong_again(value, head_dim):
    if value > 10 * head_dim or abs(value - 2 * head_dim) < 0.3 * head_dim > 4:
        return judge(value, head_dim)
    return Fault(
        "measured on too little",
        f"At head_dim = 1024 the result is right; at head_dim = {head_dim} it was {value:.2f} this time, and is "
        f"another "
        "in every run, as if one key served all 2000 queries, one query all keys, or as if only a few pairs were "
        "taken.",
        "2000 scores with one key have the variance of that key's own numbers: chance. Draw 2000 keys.",
    )


def judge_first(result, head_dim):
    """At 1024, the sums of 2000 products are as large as those of a vector with itself: 64 tells them apart."""
    fault = judge(result, head_dim)
    return None if fault is not None and fault.name == "twice as large" else fault


def with_larger_numbers(variance_of_scores, head_dim):
    """The variance where every number that randn draws is twice as large."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Larger(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            drawn = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            if name == "normal_":
                return drawn.mul_(2)
            return drawn * 2 if name in ("randn", "randn_like", "normal") else drawn

    with Larger():
        return variance_of_scores(head_dim)


def judge_both_drawn(result, head_dim):
    """16 times the variance where queries and keys are drawn, 4 times where only one of them is."""
    times = float(result) / head_dim
    return (
        None
        if not 3 < times < 5
        else Fault(
            "only one is random",
            f"With random numbers twice as large, the variance is {times:.0f} times as large; it should be 16 times.",
            "So only one of each pair is drawn by torch.randn. Queries and keys both are.",
        )
    )


def at_width(head_dim):
    return lambda random: (head_dim,)


# One key for all queries gives nearly 1024 at 1024, as no other mistake does, and chance at 4.
parts = [
    Judged("variance_of_scores", at_width(1024), judge_first),
    Judged("variance_of_scores", at_width(64), judge_second),
    Judged("variance_of_scores", at_width(4), judge_second, runs=10),
    Judged("variance_of_scores", at_width(64), judge_both_drawn, through=with_larger_numbers),
    Question(
        "divided_by",
        right="b",
        because={
            "a": "Try it: divide the scores by head_dim before var(). The variance becomes 1/head_dim: too small. "
            "Dividing numbers by c divides their variance by c².",
            "c": "Far too much: dividing numbers by c divides their variance by c².",
        },
    ),
]
