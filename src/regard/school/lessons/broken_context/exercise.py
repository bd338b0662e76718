"""Broken: a text that is too long."""

import re

import torch

from regard.school.exercises import Fault, Judged, Layer, cat

REMEDY = "pass|at most|no more|build|cut|shorten|shorter|truncate|increase|raise|larger|longer context|use|try|split|limit|reduce|up to"


def too_long(random):
    context_length = int(torch.randint(5, 20, (), generator=random))
    return context_length + int(torch.randint(2, 20, (), generator=random)), context_length


def refuses(text, T, context_length):
    kind, _, message = text.partition(": ")
    numbers = [int(n) for n in re.findall(r"\d+", message)]
    sizes = f"{T} tokens with context_length={context_length}"
    if text.startswith("["):
        cut = text == str([1, context_length, 2])
        return Fault(
            "text cut" if cut else "no error",
            f"{sizes} give an output of shape {text}; they must give a ValueError.",
            f"{T - context_length} tokens were dropped, and whoever passed them does not know."
            if cut
            else "The layer was built for a context: a model has no positions beyond it.",
        )
    if "'ValueError' object" in message:
        return Fault("returned, not raised", f"{sizes}: the error is returned as a value; write raise ValueError(…).")
    if kind in ("AttributeError", "NameError"):
        return Fault(
            "length unknown",
            f"{sizes} raise {kind}: {message.rstrip('.')}.",
            "The layer does not keep context_length: note it in __init__, self.context_length = context_length, or "
            "count the rows of the mask, len(self.mask).",
        )
    if kind != "ValueError":
        return Fault(
            f"{kind} instead of ValueError",
            f"{sizes} raise {kind}: {message}",
            "It is still torch's own error: check the length before anything is computed."
            if "must match" in message
            else "A wrong value is a ValueError.",
        )
    if T not in numbers or context_length not in numbers:
        return Fault(
            "values missing",
            f"The error of {sizes} is {message!r}; it does not say both numbers, {T} and {context_length}.",
        )
    longer = f"context_length={T}" if f"{T} tokens" in message else ""  # the remedy: a layer that is built for more
    if re.search(
        rf"\b{context_length} tokens do(?:es)? not\b|context_length\W{{1,3}}{T}\b", message.replace(longer, "")
    ):
        return Fault("values exchanged", f"The error of {sizes} is {message!r}; the two numbers are exchanged.")
    if not re.search(REMEDY, message.lower()):
        return Fault(
            "remedy missing",
            f"The error of {sizes} is {message!r}; it does not say what to do: pass fewer tokens, or build a "
            f"larger layer.",
        )
    return None


def fitting(random):
    context_length = int(torch.randint(5, 20, (), generator=random))
    return context_length, context_length


def shorter(random):
    T, context_length = fitting(random)
    return T - 3, context_length


def accepts(text, T, context_length):
    if text != str([1, T, 2]) and T < context_length:
        return Fault(
            "shorter texts refused",
            f"{T} tokens fit context_length={context_length}, but the answer is {text!r}.",
            "Only a text that is longer does not fit: T > context_length.",
        )
    if text != str([1, T, 2]):
        return Fault("one too few", f"{T} tokens must fit context_length={context_length}, but the answer is {text!r}.")
    return None


parts = [
    Judged("answer", too_long, refuses, runs=3),
    Judged("answer", fitting, accepts, runs=3),
    Judged("answer", shorter, accepts),
    Layer("CausalAttention", causal=True, plain=True),
]

picture = cat.of_layer("CausalAttention", "Six words fit a context of six; none looks ahead:", (11, 6, 6), heads=1)
