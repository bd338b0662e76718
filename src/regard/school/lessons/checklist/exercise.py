"""The checklist: eight questions."""

from regard.school.exercises import Question

parts = [
    Question(
        "where",
        right="a",
        because={
            "b": "Set W_value to zero: the weights stay as they are. So it cannot decide where a token looks.",
            "c": "The weights are made from scores, and the scores from two of the four only. Which two?",
        },
    ),
    Question(
        "what",
        right="b",
        because={
            "a": "Queries and keys are used up in the scores. What do the weights mix after that?",
            "c": "Only what comes after the weights can be handed over. Which matrices are that?",
        },
    ),
    Question(
        "scale",
        right="c",
        because={
            "a": "The softmax does that, with any scores. What changes in the weights when scores get larger?",
            "b": "They are scaled in float32 too, where any score fits. Think of how the variance of a sum grows with its terms.",
        },
    ),
    Question(
        "minus_infinity",
        right="a",
        because={
            "b": "That is what masking after the softmax gives. Here the sum is made of the scores that are left.",
            "c": "exp(−∞) is not small, it is exactly another number. Which?",
        },
    ),
    Question(
        "heads",
        right="c",
        because={
            "a": "Count them: W_query is d_in × d_out, whatever the number of heads.",
            "b": "The products have as many multiplications with 12 heads of 64 as with one of 768.",
        },
    ),
    Question(
        "shape",
        right="b",
        because={
            "a": "That is one head. The heads are joined side by side, and projected.",
            "c": "That is the context before the heads are joined again.",
        },
    ),
    Question(
        "contiguous",
        right="b",
        because={
            "a": "The shape is the same before and after contiguous(). What changes is in memory.",
            "c": "That is what transpose does. view then finds no single stride to walk along.",
        },
    ),
    Question(
        "order",
        right="c",
        because={
            "a": "view cuts the last axis, so the heads must be split before they can be moved; and look at the end again.",
            "b": "A head that gets a piece of x cannot look for anything in the rest of it. What comes before the split?",
        },
    ),
]
