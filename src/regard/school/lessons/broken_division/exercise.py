"""Broken: heads that do not fit."""

import re

import torch

from regard.school.exercises import Fault, Judged


# The rule in any words: divisible, a multiple, heads of equal size, nothing left over …
RULE = r"divi|multiple|equal|even|same size|remain|left over|rest\b|whole|integer|fit|share|split|cut|%|modulo"


def dividing(random):
    D, H = torch.randint(2, 20, (2,), generator=random).tolist()
    return D * H, H


def left_over(random):
    """An even width, so that some number of heads divides it; what is left over is not 0, and does not divide it."""
    while True:
        d_out, H = (
            torch.randint(40, 250, (), generator=random).item(),
            torch.randint(5, 20, (), generator=random).item(),
        )
        if d_out % 2 == 0 and d_out % H and d_out % (d_out % H):
            return d_out, H


def accepts(text, d_out, num_heads):
    if text:
        return Fault(
            "refuses what is right",
            f"d_out={d_out} and num_heads={num_heads} divide evenly, but the constructor raises {text!r}.",
        )
    return None


def refuses(text, d_out, num_heads):
    kind, _, message = text.partition(": ")
    numbers = [int(n) for n in re.findall(r"\d+", message)]
    proposed = [n for n in numbers if n not in (0, 1, d_out, num_heads)]
    others = [n for n in proposed if n not in (d_out // num_heads, d_out % num_heads)]
    good = [n for n in proposed if n % num_heads == 0 or d_out % n == 0]
    sizes = f"Heads(4, {d_out}, {num_heads})"
    if not text:
        return Fault(
            "no error",
            f"{sizes} is built without a word, though {d_out} = "
            f"{d_out // num_heads} · {num_heads} + {d_out % num_heads}.",
            "It fails later, in view, with numbers that nobody wrote.",
        )
    if kind != "ValueError":
        return Fault(
            f"{kind} instead of ValueError",
            f"{sizes} raises {kind}; a wrong value is a ValueError.",
            "assert is switched off by python -O, so it is no check of what other people pass."
            if kind == "AssertionError"
            else "",
        )
    if d_out not in numbers or num_heads not in numbers:
        return Fault(
            "values missing",
            f"The error of {sizes} is {message!r}; it does not say both values, {d_out} and {num_heads}.",
            "The values often come from a file or from another function: who reads the error has not seen them.",
        )
    if re.search(rf"(?:divisible|divided|multiple) (?:by|of) (?:d_out\b|{d_out}\b)", message):
        return Fault(
            "the wrong way round", f"The error of {sizes} is {message!r}; {d_out} is to be divided by {num_heads}."
        )
    if not re.search(RULE, message.lower()):
        return Fault("rule missing", f"The error of {sizes} is {message!r}; say what must be divisible by what.")
    if not good and not others:
        return Fault(
            "remedy missing",
            f"The error of {sizes} is {message!r}; it names no width or number of heads that would work.",
            "d_out - d_out % num_heads is the next smaller width.",
        )
    if not good:
        return Fault(
            "remedy does not work",
            f"The error of {sizes} is {message!r}; with none of {', '.join(map(str, others))} does it divide.",
        )
    return None


parts = [
    Judged("error_of", left_over, refuses, runs=8),
    Judged("error_of", dividing, accepts, runs=3),
]
