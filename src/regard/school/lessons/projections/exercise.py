"""Queries, keys and values."""

import torch

from regard.school.exercises import Function, Wrong, cat


def project_arguments(random):
    return torch.randn(5, 3, generator=random), *torch.randn(3, 3, 2, generator=random)


def scores_arguments(random):
    return tuple(torch.randn(2, 5, 3, generator=random))


def projected(x, *matrices):
    return tuple(x @ W for W in matrices)


parts = [
    Function(
        "project",
        project_arguments,
        right=projected,
        wrong=[
            Wrong(
                "one matrix for all",
                "q, k and v are the same: all three come from W_query.",
                lambda x, Q, K, V: projected(x, Q, Q, Q),
                why="With one matrix for all roles, a word can only look for what it is itself.",
            ),
            Wrong(
                "keys by W_query",
                "k comes from W_query; W_key makes the keys.",
                lambda x, Q, K, V: projected(x, Q, Q, V),
            ),
            Wrong(
                "values by W_key",
                "v comes from W_key; W_value makes the values.",
                lambda x, Q, K, V: projected(x, Q, K, K),
            ),
            Wrong(
                "keys and values exchanged",
                "k comes from W_value and v from W_key, or they are returned as q, v, k.",
                lambda x, Q, K, V: projected(x, Q, V, K),
            ),
            Wrong(
                "order reversed",
                "Values come first; return q, k, v in this order.",
                lambda x, Q, K, V: projected(x, V, K, Q),
            ),
            Wrong(
                "order v, q, k",
                "Values come first; return q, k, v in this order.",
                lambda x, Q, K, V: projected(x, V, Q, K),
            ),
            Wrong(
                "queries by W_value",
                "q comes from W_value; W_query makes the queries.",
                lambda x, Q, K, V: projected(x, V, K, V),
            ),
            Wrong(
                "queries by W_key",
                "q comes from W_key; W_query makes the queries.",
                lambda x, Q, K, V: projected(x, K, K, V),
            ),
            Wrong(
                "keys by W_value",
                "k comes from W_value; W_key makes the keys.",
                lambda x, Q, K, V: projected(x, Q, V, V),
            ),
            Wrong(
                "values not projected",
                "v is x itself; W_value makes the values.",
                lambda x, Q, K, V: (x @ Q, x @ K, x),
            ),
            Wrong(
                "order",
                "Keys come before queries; return q, k, v in this order.",
                lambda x, Q, K, V: projected(x, K, Q, V),
            ),
            Wrong(
                "matrix transposed",
                "x is (5, 3) and W_query is (3, 2); x @ W_query.T would need 3 rows, and W_query.T has 2.",
                raises="shapes cannot be multiplied (5x3 and 2x3)",
                why="These matrices are (d_in, d_out), so x @ W. nn.Linear keeps its weight the other way round, "
                "(d_out, d_in), and computes x @ weight.T.",
            ),
            Wrong(
                "matrix before x",
                "The matrix comes before x, and (3, 2) and (5, 3) do not match. Put x first: its rows are the words.",
                raises="shapes cannot be multiplied (3x2 and 5x3)",
            ),
            Wrong(
                "number by number",
                "`*` multiplies number by number, and (5, 3) and (3, 2) do not match; `@` is the matrix product.",
                raises="The size of tensor a",
            ),
        ],
    ),
    Function(
        "scores",
        scores_arguments,
        right=lambda q, k: q @ k.T,
        wrong=[
            Wrong(
                "keys before queries",
                "Row i belongs to key i; it must belong to query i.",
                lambda q, k: k @ q.T,
                why="The softmax comes next, over each row: the shares that one query gives.",
            ),
            Wrong("queries with queries", "Queries are compared with queries, k is not used.", lambda q, k: q @ q.T),
            Wrong(
                "only pairs of the same index",
                "Query i is compared with key i only: 5 numbers. Every query meets every key: (5, 5).",
                lambda q, k: (q * k).sum(-1),
            ),
            Wrong(
                "columns compared",
                "q.T @ k compares the columns; the rows are the words.",
                lambda q, k: q.T @ k,
            ),
            Wrong(
                "not transposed",
                "The shapes of q @ k do not match, (5, 3) and (5, 3): the second matrix must have the keys as columns.",
                raises="shapes cannot be multiplied (5x3 and 5x3)",
            ),
            Wrong(
                "softmax over the queries",
                "These are weights already, and each column sums to 1; return the scores, without softmax.",
                lambda q, k: (q @ k.T).softmax(0),
            ),
            Wrong(
                "scaled too early",
                "The scores are divided by √{0}; here they are plain dot products. The scale comes two exercises on.".replace(
                    "{0}", "3"
                ),
                lambda q, k: q @ k.T / 3**0.5,
            ),
            Wrong(
                "softmax too early",
                "These are weights already; return the scores, without softmax.",
                lambda q, k: (q @ k.T).softmax(-1),
            ),
            Wrong(
                "divided by the number of keys",
                "The scores are divided by how many keys there are; they are plain dot products.",
                lambda q, k: q @ k.T / len(k),
            ),
        ],
    ),
]

picture = cat.Picture(
    "project",
    [(cat.VECTORS, cat.QUERIES[0], cat.KEYS[0], torch.eye(5))],
    lambda results: (results[0][0] @ results[0][1].T / 6**0.5).softmax(-1)[None],
    "Your queries meet your keys. Now a word may look for another kind: sat, for who does it:",
    cat.WORDS,
)
