"""One word looks at a sentence."""

import torch

from regard.school.exercises import cat
from regard.school.exercises import Function, Wrong

JOURNEY = torch.tensor(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)


def journey(random):
    return JOURNEY, 1


def arguments(random):
    """A sentence in which another word than the query has the largest score, and words follow it."""
    x, query = torch.rand(5, 3, generator=random), int(torch.randint(2, 4, (1,), generator=random))
    return arguments(random) if int((x @ x[query]).argmax()) == query else (x, query)


def weights_of(x, query):
    return (x @ x[query]).softmax(0)


WRONG = [
    Wrong(
        "no softmax",
        "The words are mixed by their scores, not by weights: softmax is missing.",
        lambda x, query: (x @ x[query]) @ x,
        why="Scores do not add up to 1, so the context grows with the number of words.",
    ),
    Wrong(
        "each word compared with itself",
        "Each word is compared with itself; compare it with the query, row {1} of x.",
        lambda x, query: (x * x).sum(1).softmax(0) @ x,
        why="Then every query gets the same weights, and the same context.",
    ),
    Wrong(
        "number of the row instead of the row",
        "Each word is multiplied by the number {1}; query is the number of a row, and x[query] is the row.",
        lambda x, query: (x * query).sum(1).softmax(0) @ x,
    ),
    Wrong(
        "the query's own row",
        "The result is the query's own row: each weight is multiplied by x[query], and the weights add up to 1.",
        lambda x, query: x[query].clone(),
        why="The weights say how much to take from each word, so weight i belongs to row i.",
    ),
    Wrong(
        "the best match alone",
        "Only the word with the largest score is taken; all are mixed, by their shares.",
        lambda x, query: x[(x @ x[query]).argmax()].clone(),
    ),
    Wrong(
        "only the last word",
        "Only the last word is in the context: each iteration of the loop replaces it.",
        lambda x, query: weights_of(x, query)[-1] * x[-1],
    ),
    Wrong(
        "words not weighted",
        "The rows are added up without their weights.",
        lambda x, query: x.sum(0),
    ),
    Wrong(
        "the query's weight for every word",
        "Every row is multiplied by the same weight, that of the query; row i has weight i.",
        lambda x, query: weights_of(x, query)[query] * x.sum(0),
    ),
    Wrong(
        "divided again",
        "The mix is divided by the number of words; the weights add up to 1 already.",
        lambda x, query: weights_of(x, query) @ x / len(x),
    ),
    Wrong(
        "plain average",
        "This is the plain average of the words: the weights do not depend on the scores.",
        lambda x, query: x.mean(0),
    ),
    Wrong(
        "divided by the sum of scores",
        "The scores are divided by their sum, without exp; use your softmax.",
        lambda x, query: (x @ x[query]) / (x @ x[query]).sum() @ x,
    ),
    Wrong(
        "rows added up to one number",
        "Each row is added up to one number (as `dot` does with a share and a row); a share times a row is a row.",
        lambda x, query: (weights_of(x, query) @ x.sum(1)).expand(x.shape[1]),
    ),
    Wrong(
        "only the first word",
        "Only the first word is in the context: the function returns in the first iteration of the loop.",
        lambda x, query: weights_of(x, query)[0] * x[0],
    ),
    Wrong(
        "scaled too early",
        "The scores are divided by √d; here they are plain dot products. The scale has an exercise of its own.",
        lambda x, query: (x @ x[query] / x.shape[1] ** 0.5).softmax(0) @ x,
    ),
    Wrong(
        "the first word as query",
        "Each word is compared with word 0; compare it with the query, row {1} of x.",
        lambda x, query: weights_of(x, 0) @ x,
    ),
    Wrong(
        "multiplied by the query",
        "The words are multiplied by the query once more when they are mixed; there it is the share times the row.",
        lambda x, query: weights_of(x, query) @ x * x[query],
    ),
    Wrong(
        "only the query's share",
        "The result is the query's own row, times its share; the shares of all words are added up.",
        lambda x, query: weights_of(x, query)[query] * x[query],
    ),
    Wrong(
        "later words left out",
        "Only the words up to the query get a score; every word of the sentence does.",
        lambda x, query: weights_of(x[: query + 1], query) @ x[: query + 1],
    ),
    Wrong(
        "later scores still 0",
        "The scores after the query are left at 0, which gives these words a share, but not their own.",
        lambda x, query: (x @ x[query]).index_fill(0, torch.arange(query + 1, len(x)), 0.0).softmax(0) @ x,
    ),
    Wrong(
        "softmax twice",
        "The softmax is taken twice, of the weights once more.",
        lambda x, query: weights_of(x, query).softmax(0) @ x,
    ),
    Wrong(
        "cosine",
        "The scores are cosines: dot products divided by both lengths. Here a long word may count for more.",
        lambda x, query: torch.cosine_similarity(x, x[query], dim=1).softmax(0) @ x,
    ),
    Wrong(
        "the query added",
        "The row of the query is added to the mix; it is in it with its share already.",
        lambda x, query: weights_of(x, query) @ x + x[query],
    ),
    Wrong(
        "the query's own score 0",
        "The query's score with itself is 0; it is a word like the others.",
        lambda x, query: (x @ x[query]).index_fill(0, torch.tensor([query]), 0.0).softmax(0) @ x,
    ),
]

parts = [
    Function("context_of", arguments, right=lambda x, query: weights_of(x, query) @ x, wrong=WRONG),
    Function("context_of", journey, right=lambda x, query: weights_of(x, query) @ x, runs=1),
]

picture = cat.Picture(
    "context_of",
    [(torch.cat([cat.VECTORS, cat.SMALL * cat.EYE], dim=1), 2)],
    lambda results: results[0][None, None, -6:] / cat.SMALL,
    'What "sat" takes of each word, scores and softmax now both yours:',
    ["sat"],
)
