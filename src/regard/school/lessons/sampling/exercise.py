"""Sampling: scores to a token."""

import torch

from regard.school.exercises import Function, Wrong


def logits_of(random):
    return torch.randn(6, generator=random) * 1.5


def number_between(random, low, high):
    return round(low + (high - low) * float(torch.rand((), generator=random)), 2)


def among_k(logits, k):
    return logits >= logits.sort(descending=True).values[k - 1]


def top_k(logits, k):
    return logits.masked_fill(~among_k(logits, k), -torch.inf).softmax(-1)


def kept_by(logits, p, is_kept):
    """The probabilities best first where is_kept(before, p) says so, and their ids."""
    best_first, ids = logits.softmax(-1).sort(descending=True)
    return best_first * is_kept(best_first.cumsum(-1) - best_first, best_first.cumsum(-1)), ids


def in_place(kept, ids):
    return torch.zeros_like(kept).index_put((ids,), kept)


def normalised(kept):
    return kept / kept.sum()


def likelier(logits, least):
    kept = logits.softmax(-1) * (logits.softmax(-1) >= least)
    return kept / kept.sum()


def top_p(logits, p):
    return normalised(in_place(*kept_by(logits, p, lambda before, upto: before < p)))


def worst_first(logits, p):
    up, ids = logits.softmax(-1).sort()
    return in_place(up * (up.cumsum(-1) - up < p), ids)


def not_sorted(logits, p):
    probabilities = logits.softmax(-1)
    return normalised(probabilities * (probabilities.cumsum(-1) - probabilities < p))


NOT_ONE = "The result does not sum to 1."
parts = [
    Function(
        "greedy",
        lambda random: (logits_of(random),),
        lambda logits: logits.argmax(),
        wrong=[
            Wrong("the score", "This is the best score; wanted is its index, the id.", lambda logits: logits.max()),
            Wrong("the worst", "This is the id of the lowest score.", lambda logits: logits.argmin()),
        ],
    ),
    Function(
        "temperature",
        lambda random: (logits_of(random), number_between(random, 0.3, 0.8)),
        lambda logits, t: (logits / t).softmax(-1),
        wrong=[
            Wrong(
                "multiplied",
                "The logits are multiplied by t ({1}); they are divided by it.",
                lambda logits, t: (logits * t).softmax(-1),
                why="Below 1, t must make the best token more likely.",
            ),
            Wrong(
                "after the softmax",
                "The probabilities are divided by t. Divide the logits, before the softmax.",
                lambda logits, t: logits.softmax(-1) / t,
                why=NOT_ONE,
            ),
            Wrong(
                "probabilities first",
                "The softmax is taken twice: once before dividing, once after.",
                lambda logits, t: (logits.softmax(-1) / t).softmax(-1),
            ),
            Wrong("no softmax", "These are logits still; the softmax is missing.", lambda logits, t: logits / t),
            Wrong("t unused", "t changes nothing.", lambda logits, t: logits.softmax(-1)),
            Wrong(
                "root of the temperature",
                "The logits are divided by √t; it is t.",
                lambda logits, t: (logits / t**0.5).softmax(-1),
            ),
            Wrong(
                "powers not divided",
                "The powers of the probabilities do not sum to 1: divide them by their sum.",
                lambda logits, t: logits.softmax(-1) ** (1 / t),
            ),
        ],
    ),
    Function(
        "top_k",
        lambda random: (logits_of(random), int(torch.randint(2, 5, (), generator=random))),
        top_k,
        wrong=[
            Wrong(
                "not renormalised",
                "All others are 0, but the {1} best do not share what these had.",
                lambda logits, k: logits.softmax(-1) * among_k(logits, k),
                why=NOT_ONE,
            ),
            Wrong(
                "0 before the softmax",
                "The other logits are set to 0. exp(0) is 1, so these tokens can be drawn.",
                lambda logits, k: logits.masked_fill(~among_k(logits, k), 0).softmax(-1),
                why="As with the causal mask, what must not be chosen gets −∞ before the softmax.",
            ),
            Wrong(
                "one too many",
                "{1} tokens are asked for, and one more is kept.",
                lambda logits, k: top_k(logits, k + 1),
                why="The k-th best of a sorted list has index k − 1.",
            ),
            Wrong(
                "one too few",
                "{1} tokens are asked for, and one less is kept.",
                lambda logits, k: top_k(logits, k - 1),
                why="The k-th best itself belongs to them: ≥, not >.",
            ),
            Wrong(
                "only k numbers",
                "{1} probabilities are returned, best first. Return one for every token, in place.",
                lambda logits, k: logits.topk(k).values.softmax(-1),
                why="Whoever draws from these gets a rank and not an id.",
            ),
            Wrong(
                "the worst k",
                "The k lowest scores are kept; the best are.",
                lambda logits, k: (
                    -top_k(-logits, k).neg()
                    if False
                    else logits.masked_fill(~among_k(-logits, k), -torch.inf).softmax(-1)
                ),
            ),
            Wrong(
                "the first k",
                "The first k ids are kept; the k with the best scores are.",
                lambda logits, k: logits.masked_fill(torch.arange(len(logits)) >= k, -torch.inf).softmax(-1),
            ),
            Wrong(
                "best first",
                "The probabilities stand best first; each stays at its own place.",
                lambda logits, k: top_k(logits, k).sort(descending=True).values,
            ),
            Wrong(
                "all k alike",
                "The k best get the same share; they keep their proportions.",
                lambda logits, k: among_k(logits, k).float() / k,
            ),
        ],
    ),
    Function(
        "top_p",
        lambda random: (logits_of(random) / 2, number_between(random, 0.5, 0.8)),  # the best is not always needed
        top_p,
        wrong=[
            Wrong(
                "each likelier than 1 − p",
                "Tokens of at least 1 − p ({1:.2f} is p) are kept; p is what those that are kept reach together.",
                lambda logits, p: likelier(logits, 1 - p),
            ),
            Wrong(
                "stops before p",
                "The token with which the sum reaches p ({1}) is left out.",
                lambda logits, p: normalised(in_place(*kept_by(logits, p, lambda before, upto: upto <= p))),
                why="Keep a token if the sum of those before it is below p. If the best alone reaches p, it is kept.",
            ),
            Wrong(
                "not renormalised",
                "The kept tokens are right, but they do not share what the others had.",
                lambda logits, p: in_place(*kept_by(logits, p, lambda before, upto: before < p)),
                why=NOT_ONE,
            ),
            Wrong(
                "best first",
                "The probabilities are sorted: place 0 is the best token, and no longer token 0.",
                lambda logits, p: normalised(kept_by(logits, p, lambda before, upto: before < p)[0]),
                why="`ids` says where each came from: put them back there.",
            ),
            Wrong(
                "not sorted",
                "The sum runs in the order of the vocabulary; it must run from the best token on.",
                not_sorted,
            ),
            Wrong(
                "each by itself",
                "Tokens are kept whose own probability is at least p ({1}); the sum must reach it.",
                lambda logits, p: normalised(logits.softmax(-1) * (logits.softmax(-1) >= p)),
            ),
            Wrong(
                "share of the best",
                "Kept are the tokens with p times the best probability or more (min-p); top-p adds up.",
                lambda logits, p: normalised(logits.softmax(-1) * (logits.softmax(-1) >= p * logits.softmax(-1).max())),
            ),
            Wrong(
                "ids the wrong way round",
                "kept[ids] on the right takes another order; on the left, kept[ids] = …, it puts each at its place.",
                lambda logits, p: normalised(
                    kept_by(logits, p, lambda before, upto: before < p)[0][
                        kept_by(logits, p, lambda before, upto: before < p)[1]
                    ]
                ),
            ),
            Wrong(
                "the rest kept",
                "Kept is what comes after p is reached; the best tokens until then are.",
                lambda logits, p: normalised(in_place(*kept_by(logits, p, lambda before, upto: before > p))),
            ),
            Wrong(
                "one too many",
                "One token more is kept than p needs.",
                lambda logits, p: normalised(
                    in_place(
                        *kept_by(logits, p, lambda before, upto: torch.arange(len(before)) < 1 + (before < p).sum())
                    )
                ),
            ),
            Wrong(
                "softmax of probabilities",
                "What is kept goes through another softmax; divide it by its sum.",
                lambda logits, p: (
                    in_place(*kept_by(logits, p, lambda before, upto: before < p))
                    .masked_fill(top_p(logits, p) == 0, -torch.inf)
                    .softmax(-1)
                ),
            ),
            Wrong(
                "nothing left out",
                "No token is left out: these are all probabilities.",
                lambda logits, p: logits.softmax(-1),
            ),
            Wrong(
                "worst first",
                "The tokens are added up from the worst on; sort(descending=True).",
                lambda logits, p: normalised(worst_first(logits, p)),
            ),
        ],
        runs=5,
    ),
]
