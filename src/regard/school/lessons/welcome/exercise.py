"""Welcome: look around."""

import torch

from regard.school.exercises import Function, Wrong

passes_unsolved = True

VECTORS = {
    "Your": [0.43, 0.15, 0.89],
    "journey": [0.55, 0.87, 0.66],
    "starts": [0.57, 0.85, 0.64],
    "with": [0.22, 0.58, 0.33],
    "one": [0.77, 0.25, 0.10],
    "step": [0.05, 0.80, 0.55],
}


def the_word(word):
    return lambda random: (word,)


def row_of(word):
    return lambda asked: torch.tensor(VECTORS[word])


parts = [
    Function(
        "vector_of",
        the_word(word),
        right=lambda word: torch.tensor(VECTORS[word]),
        wrong=[
            Wrong(
                "a changed number",
                "The row of “Your” was 0.43, 0.15, 0.89; it is now 0.43, 0.15, 0.88.",
                lambda word: torch.tensor([0.43, 0.15, 0.88]),
                why="This is how mistakes are reported: a name, what your code did, and why it matters.",
            )
        ][: word == "Your"]
        + [
            Wrong(f"the row of “{other}”", f"This is the row of “{other}”, not that of {{0!r}}.", row_of(other))
            for other in VECTORS
            if other != word
        ],
        runs=1,
    )
    for word in VECTORS
]
