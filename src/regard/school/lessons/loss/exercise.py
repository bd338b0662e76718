"""The loss: cross-entropy, and what is compared with what."""

import torch
import torch.nn.functional as F

from regard.school.exercises import Fault, Function, Judged, Wrong


def some_ids(random):
    return (torch.randint(11, (3, 6), generator=random),)


def arguments(random):
    B, T, V = 3, 5, 7
    return 2 * torch.randn(B, T, V, generator=random), torch.randint(V, (B, T), generator=random)


def large(random):
    B, T, V = 3, 5, 7
    logits = torch.randn(B, T, V, generator=random)
    logits[0, 0], logits[1, 1, 3], logits[2, 2] = logits[0, 0] + 1000, 500, -1000
    return logits, torch.randint(V, (B, T), generator=random)


def terms(logits, targets, dim=-1):
    return -logits.log_softmax(dim).gather(-1, targets[..., None])[..., 0]


def right(logits, targets):
    return terms(logits, targets).mean()


def base_two(logits, targets):
    return right(logits, targets) / torch.tensor(2.0).log()


def one_hot_mean(logits, targets):
    return -(F.one_hot(targets, logits.shape[-1]) * logits.log_softmax(-1)).mean()


def fused(cross_entropy, logits, targets):
    """Which losses of torch were called, by name."""
    import torch

    names = []
    kept = {name: getattr(torch.nn.functional, name) for name in ("cross_entropy",)}

    def told(name):
        def call(*args, **kwargs):
            names.append(name)
            return kept[name](*args, **kwargs)

        return call

    for name in kept:
        setattr(torch.nn.functional, name, told(name))
    try:
        cross_entropy(logits, targets)
    finally:
        for name, function in kept.items():
            setattr(torch.nn.functional, name, function)
    return names


def judge_own(names, logits, targets):
    if names:
        return Fault("torch's own loss", f"It calls F.{names[0]}; write it with logsumexp or log_softmax.")
    return None


parts = [
    Function(
        "inputs_and_targets",
        some_ids,
        lambda ids: (ids[:, :-1], ids[:, 1:]),
        wrong=[
            Wrong(
                "targets not shifted",
                "Inputs and targets are the same: each token should predict itself.",
                lambda ids: (ids[:, :-1], ids[:, :-1]),
                why="The loss would fall to 0 at once, by copying, and the model would write nothing but repeats.",
            ),
            Wrong(
                "exchanged",
                "Inputs and targets are exchanged: the model would read what comes next, and say what was.",
                lambda ids: (ids[:, 1:], ids[:, :-1]),
            ),
            Wrong(
                "whole texts",
                "Both are as long as ids; the last token has no target, and the first is none.",
                lambda ids: (ids, ids),
            ),
            Wrong(
                "cut across the texts",
                "The first or last text is left out; tokens are on axis 1: ids[:, 1:].",
                lambda ids: (ids[:-1], ids[1:]),
            ),
            Wrong(
                "last token only",
                "Only the last token is a target; every token but the first is one.",
                lambda ids: (ids[:, :-1], ids[:, -1]),
            ),
        ],
    ),
    Function(
        "cross_entropy",
        arguments,
        right,
        wrong=[
            Wrong(
                "1 less the share",
                "This is 1 less the share; the loss is −ln of it.",
                lambda logits, targets: 1 - logits.softmax(-1).gather(-1, targets[..., None]).mean(),
            ),
            Wrong(
                "no minus",
                "The sign is missing: ln of a share is negative, and the loss is its opposite.",
                lambda logits, targets: -right(logits, targets),
                why="Training makes the loss small: with this sign it would learn to be as wrong as possible.",
            ),
            Wrong(
                "sum",
                "The terms are added; take their mean, or the loss depends on the length of the text.",
                lambda logits, targets: terms(logits, targets).sum(),
            ),
            Wrong(
                "sum over a text",
                "The terms of a text are added; take the mean over all tokens.",
                lambda logits, targets: terms(logits, targets).sum(-1).mean(),
            ),
            Wrong(
                "over the tokens",
                "The softmax goes over the tokens of the text; it goes over the vocabulary, dim=-1.",
                lambda logits, targets: terms(logits, targets, dim=1).mean(),
            ),
            Wrong(
                "no logarithm",
                "It is the mean share of the right tokens; the loss is −ln of each share.",
                lambda logits, targets: terms(logits, targets).neg().exp().mean(),
            ),
            Wrong(
                "no logarithm, negative",
                "It is minus the mean share; the loss is −ln of each share.",
                lambda logits, targets: -terms(logits, targets).neg().exp().mean(),
            ),
            Wrong(
                "logarithm of the mean",
                "ln is taken of the mean share; take it of each share, then the mean.",
                lambda logits, targets: -terms(logits, targets).neg().exp().mean().log(),
            ),
            Wrong(
                "no normalisation",
                "These are the scores of the right tokens; ln Σ e^scores is missing.",
                lambda logits, targets: -logits.gather(-1, targets[..., None]).mean(),
                why="Without it the loss would fall forever by making all scores larger.",
            ),
            Wrong(
                "softmax twice",
                "A softmax is taken of shares that were one already.",
                lambda logits, targets: terms(logits.softmax(-1), targets).mean(),
            ),
            Wrong("base two", "This is in bits: log2. The loss is in nats, torch.log.", base_two),
            Wrong(
                "mean over the vocabulary",
                "The mean goes over all V places of a one-hot vector, and V − 1 are 0.",
                one_hot_mean,
            ),
            Wrong("one for each token", "This is the loss of each token; return their mean, one number.", terms),
            Wrong(
                "first tokens of the vocabulary",
                "The scores of wrong tokens are taken; gather picks by id along dim=-1.",
                lambda logits, targets: (logits.logsumexp(-1) - logits[..., 0]).mean(),
            ),
            Wrong(
                "ids as scores",
                "targets are subtracted; they are ids, numbers of tokens, not scores.",
                lambda logits, targets: (logits.logsumexp(-1) - targets).mean(),
            ),
            Wrong(
                "mean of each text, then added",
                "The means of the texts are added; it is one mean over all tokens.",
                lambda logits, targets: terms(logits, targets).mean(-1).sum(),
            ),
            Wrong(
                "base ten",
                "The logarithm is that of base 10; it is the natural one.",
                lambda logits, targets: right(logits, targets) / torch.tensor(10.0).log(),
            ),
            Wrong(
                "share of wrong guesses",
                "That is the share of tokens for which another has the best score.",
                lambda logits, targets: (logits.argmax(-1) != targets).float().mean(),
            ),
            Wrong(
                "squared error",
                "Squared differences of shares are averaged; the loss is −ln of the right token's share.",
                lambda logits, targets: ((logits.softmax(-1) - F.one_hot(targets, logits.shape[-1])) ** 2).mean(),
            ),
            Wrong(
                "perplexity",
                "That is e to the power of the loss, the perplexity.",
                lambda logits, targets: right(logits, targets).exp(),
            ),
            Wrong(
                "largest not added back",
                "The largest score is taken out of the sum and not added again: m + ln Σ e^(s − m).",
                lambda logits, targets: (terms(logits, targets) - logits.amax(-1)).mean(),
            ),
            Wrong(
                "mean over the vocabulary, too",
                "−ln of all shares is averaged; only the right token's counts.",
                lambda logits, targets: -logits.log_softmax(-1).mean(),
            ),
            Wrong(
                "last token only",
                "Only the last token of each text counts.",
                lambda logits, targets: terms(logits, targets)[:, -1].mean(),
            ),
            Wrong(
                "every target in every text",
                "logits[..., targets] takes all targets at every place; each place has one: gather.",
                lambda logits, targets: (logits.logsumexp(-1) - logits[..., targets].mean((-1, -2))).mean(),
            ),
            Wrong(
                "logsumexp over the tokens",
                "logsumexp goes over the tokens, dim=1; it goes over the vocabulary, dim=-1.",
                lambda logits, targets: logits.logsumexp(1).mean() - logits.gather(-1, targets[..., None]).mean(),
            ),
        ],
        tolerance=1e-4,
    ),
    Function(
        "cross_entropy",
        large,
        right,
        wrong=[
            Wrong(
                "overflow",
                "For large scores it is inf or NaN: e^1000 overflows. Take the largest score out, or use logsumexp.",
                lambda logits, targets: (
                    logits.exp().sum(-1).log() - logits.gather(-1, targets[..., None])[..., 0]
                ).mean(),
            ),
            Wrong(
                "underflow",
                "A share became 0, and ln 0 is −inf. Take the logarithm before the exponential is: logsumexp.",
                lambda logits, targets: -logits.softmax(-1).log().gather(-1, targets[..., None]).mean(),
                why="softmax of 0 and 500 is 0 and 1 in float32; the score 500 itself is no problem.",
            ),
            Wrong(
                "clamped",
                "Shares are kept above a smallest one, so a large loss is cut off. logsumexp needs no such floor.",
                lambda logits, targets: -(logits.softmax(-1) + 1e-8).log().gather(-1, targets[..., None]).mean(),
            ),
            Wrong(
                "one maximum for all",
                "One maximum is taken out for all tokens: where the others are far below it, Σ e^(s − m) is 0. "
                "Take one for each token.",
                lambda logits, targets: (
                    logits.max()
                    + (logits - logits.max()).exp().sum(-1).log()
                    - logits.gather(-1, targets[..., None])[..., 0]
                ).mean(),
            ),
            Wrong(
                "cut off by a small number",
                "A small number is added to the share before ln: a share of 0 then costs 21, whatever the scores are.",
                lambda logits, targets: -(logits.softmax(-1).gather(-1, targets[..., None]) + 1e-9).log().mean(),
            ),
        ],
        tolerance=1e-4,
    ),
    Judged("cross_entropy", arguments, judge_own, through=fused),
]
