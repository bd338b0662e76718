"""Embeddings: token and position."""

import torch

from regard.school.exercises import Function, Question, Wrong


def arguments(random):
    B, T, V, C, E = 5, 5, 7, 7, 3
    ids = torch.randint(V, (B, T), generator=random)
    return ids, torch.randn(V, E, generator=random), torch.randn(C, E, generator=random)


def right(ids, token_table, position_table):
    return token_table[ids] + position_table[: ids.shape[1]]


parts = [
    Function(
        "embed",
        arguments,
        right,
        wrong=[
            Wrong(
                "no positions",
                "The position vectors are missing.",
                lambda ids, tokens, positions: tokens[ids],
                why="Then a token has the same vector wherever it stands.",
            ),
            Wrong(
                "position by id",
                "position_table is indexed by the ids. Its rows belong to positions 0, 1, 2, …",
                lambda ids, tokens, positions: tokens[ids] + positions[ids],
                why="That is a second token table: the order of the tokens makes no difference.",
            ),
            Wrong(
                "counted from 1",
                "The first token gets row 1 of position_table; positions are counted from 0.",
                lambda ids, tokens, positions: tokens[ids] + positions[1 : ids.shape[1] + 1],
            ),
            Wrong(
                "last positions",
                "The last T rows of position_table are added, not the first T.",
                lambda ids, tokens, positions: tokens[ids] + positions[-ids.shape[1] :],
            ),
            Wrong(
                "positions down the batch",
                "Text 0 gets position 0 at all its tokens, text 1 position 1, and so on.",
                lambda ids, tokens, positions: tokens[ids] + positions[: ids.shape[0], None],
                why="The first axis of ids is the batch, the second the position.",
            ),
            Wrong(
                "one position for all",
                "The same position vector is added to every token.",
                lambda ids, tokens, positions: tokens[ids] + positions[ids.shape[1]],
            ),
            Wrong(
                "whole position table",
                "All rows of position_table are added; a text of T tokens needs the first T.",
                raises="must match the size of tensor",
            ),
            Wrong(
                "multiplied",
                "The two vectors are multiplied; they are added.",
                lambda ids, tokens, positions: tokens[ids] * positions[: ids.shape[1]],
            ),
            Wrong(
                "tables exchanged",
                "The ids choose rows of the position table, and the places rows of the token table.",
                lambda ids, token_table, position_table: position_table[ids] + token_table[: ids.shape[1]],
            ),
            Wrong(
                "positions go on from text to text",
                "The positions go on from text to text; every text begins at position 0.",
                lambda ids, token_table, position_table: (
                    token_table[ids] + position_table[torch.arange(ids.numel()).view(ids.shape) % len(position_table)]
                ),
            ),
            Wrong(
                "positions backwards",
                "The positions run backwards: the last token gets row 0.",
                lambda ids, token_table, position_table: token_table[ids] + position_table[: ids.shape[1]].flip(0),
            ),
            Wrong(
                "tokens times √E",
                "The token's row is multiplied by √E; here the two rows are added as they are.",
                lambda ids, token_table, position_table: (
                    token_table[ids] * token_table.shape[1] ** 0.5 + position_table[: ids.shape[1]]
                ),
            ),
            Wrong(
                "number of the position",
                "The number of the position is added; it is the row of the position table.",
                lambda ids, token_table, position_table: token_table[ids] + torch.arange(ids.shape[1])[:, None],
            ),
            Wrong(
                "first position for all",
                "Every token gets the row of position 0.",
                lambda ids, token_table, position_table: token_table[ids] + position_table[0],
            ),
        ],
    ),
    Question(
        "order",
        right="b",
        because={
            "a": "The output is a weighted sum over the keys. Does a sum depend on the order of its terms?",
            "c": "Nothing tells attention which tokens are neighbours: a score compares two vectors, wherever they stand.",
        },
    ),
]
