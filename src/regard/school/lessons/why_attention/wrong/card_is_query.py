# named: answer_4: b
answer_1 = "b"
answer_2 = "c"
answer_3 = "a"
answer_4 = "b"
answer_5 = "b"
