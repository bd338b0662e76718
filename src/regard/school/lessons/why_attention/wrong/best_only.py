# named: answer_5: a
answer_1 = "b"
answer_2 = "c"
answer_3 = "a"
answer_4 = "c"
answer_5 = "a"
