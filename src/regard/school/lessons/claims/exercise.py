"""Claims about heads, measured."""

from regard.school.exercises import Question

parts = [
    Question(
        "head_1",
        right="b",
        because={
            "a": "Line 1 has a role for head 1 of each layer. Are they the same in every layer, and is one of them grammar?",
            "c": "In the first layer, head 1 is broad: it spreads its weight over many tokens. That is not grammar.",
        },
    ),
    Question(
        "commonest",
        right="mixed",
        because={
            "broad": "Ten heads are broad. Line 2 has a role with more.",
            "first token": "Seven heads look mostly at the first token. Line 2 has a role with more.",
            "local": "Five heads are local. Line 2 has a role with more.",
            "previous token": "One head has this role, 0.2. Line 2 has a role with more.",
            "self": "One head has this role, 2.1. Line 2 has a role with more.",
            "induction": "No head has this role here: the text repeats nothing. Run the file and read line 2.",
            "grammar": "No head has such a role. Run the file and read line 2.",
        },
    ),
    Question(
        "reordered",
        right="b",
        because={
            "a": "out_proj's columns move with their head. It adds up what the heads bring: does a sum depend on the order?",
            "c": "No training is needed. out_proj adds up what the heads bring, and its columns moved with them.",
        },
    ),
    Question(
        "costly",
        right=1,
        because={
            0: "Line 3 is sorted, the largest cost first. The first is well above 0.5.",
            2: "Line 3 is sorted. The second head costs 0.16, and that is less than 0.5.",
            6: "These cost 0.10 and more. The question asks for more than 0.5.",
            48: "Those are all heads. Line 3 has the cost of each: count those above 0.5.",
        },
    ),
    Question(
        "richer",
        right="c",
        because={
            "a": "Line 3: how many heads cost 0.01 or less on this text? Their share cannot be found by cutting them.",
            "b": "Alone, each of these 47 costs 0.16 at most. All 47 together cost 0.9 (the loss is 4.5 instead of 3.6).",
        },
    ),
]
