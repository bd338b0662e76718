# named: answer_1: a
answer_1 = "a"
answer_2 = "c"
answer_3 = "a"
answer_4 = "c"
answer_5 = "b"
