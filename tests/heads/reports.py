"""Reports to test with: a few calls, added as a model would make them."""

import torch

from heads.dense import random_call
from regard.attention.masks import causal, window
from regard.heads.report.report import Seen

WORDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 9, 2]])


def seen_of(*calls, **options):
    seen = Seen(**options)
    for number, call in enumerate(calls):
        seen.add(0, number, call)
    return seen


def two_layers(**options):
    return seen_of(
        random_call(mask=causal(), tokens=WORDS, module="h.0.attn"),
        random_call(mask=causal() & window(3), Hkv=1, tokens=WORDS, module="h.1.attn"),
        **options,
    )


def steps_seen(*layers, **options):
    """Each layer a list of calls, one for each forward."""
    seen = Seen(**options)
    for forward, calls in enumerate(zip(*layers, strict=True)):
        for layer, call in enumerate(calls):
            seen.add(forward, layer, call)
    return seen
