# named: answer_3: b
answer_1 = "b"
answer_2 = "c"
answer_3 = "b"
answer_4 = "c"
answer_5 = "b"
