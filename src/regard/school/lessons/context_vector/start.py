"""One word looks at a sentence: scores, weights, context.

"journey" is the query. In "Your journey starts with one step" it gets

    scores    .9544  1.4950  1.4754   .8434   .7070  1.0865    word · query
    weights   .1385   .2379   .2333   .1240   .1082   .1581    softmax
    context   .4419   .6515   .5683          the words, mixed by the weights

The context is .1385 times the row of "Your", plus .2379 times the row of
"journey", and so on: three numbers for "journey", now with the sentence in
them. This is attention. Everything later makes it trainable and fast.

x has shape (T, d), one row for each word; query is the number of a row.
dot and softmax are those of the exercises before.
"""

import torch


def dot(a, b):
    return (a * b).sum()


def softmax(scores):
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def context_of(x, query):
    scores = torch.zeros(len(x))
    for i in range(len(x)):
        scores[i] = ...  # how well does word i match the query?
    weights = ...
    context = torch.zeros(x.shape[1])
    for i in range(len(x)):
        context += ...  # the share of word i, times its row
    return context
