"""Why attention?"""

from regard.school.exercises import Question

parts = [
    Question(
        "answer_1",
        right="b",
        because={
            "a": "That is what attention does. A recurrent network keeps no earlier word, only its one vector.",
            "c": "It knows more than that: its vector carries something of every word it has read.",
        },
    ),
    Question(
        "answer_2",
        right="c",
        because={
            "a": "That is how a recurrent network passes a word on, step by step. One layer of attention "
            "compares every word with every other.",
            "b": "Distance plays no part: scores were computed for all words of the sentence in the same way.",
        },
    ),
    Question(
        "answer_3",
        right="a",
        because={
            "b": "That is the price of recurrence. You computed the scores of all words in one product.",
            "c": "All words share the same matrices; a longer text needs no new ones. Count the scores.",
        },
    ),
    Question(
        "answer_4",
        right="c",
        because={
            "a": "Turned round: the query is what you look for, and the value is what you take home.",
            "b": "The card is not what you look for. It is what the book is filed under.",
        },
    ),
    Question(
        "answer_5",
        right="b",
        because={
            "a": "That would be a search for the best hit. Softmax gives every key a share, most of them small.",
            "c": "The keys are only for finding. Which vectors are handed over, once the shares are known?",
        },
    ),
]
