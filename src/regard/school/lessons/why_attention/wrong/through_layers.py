# named: answer_2: a
answer_1 = "b"
answer_2 = "a"
answer_3 = "a"
answer_4 = "c"
answer_5 = "b"
