"""The checklist: eight questions before you say that you know it.

No code here: read each question, and write the letter of the answer in
place of the `...`, in quotes, for example  first = "a"
For a wrong answer you are told why it is wrong. What you have written so
far answers all of them; where you are not sure, try it in Python first.
"""

# Which matrices decide where a token looks?
# a) W_query and W_key   b) W_value and out_proj   c) all four alike
where = ...

# And which decide what is handed over from there?
# a) W_query and W_key   b) W_value and out_proj   c) all four alike
what = ...

# Why are scores divided by √head_dim?
# a) So that each row of weights sums to 1.   b) So that the scores fit fp16.
# c) Where q and k hold independent numbers of mean 0 and variance 1, the
#    scores' variance is head_dim; undivided, the softmax picks one key.
scale = ...

# What does a score of −∞ become, and what does its row sum to?
# a) a weight of 0; the row sums to 1
# b) a weight of 0; the row sums to less than 1
# c) a very small weight; the row sums to 1
minus_infinity = ...

# Why several heads and not one?
# a) They have more parameters.   b) They are faster.
# c) One softmax gives one set of weights: several places need several heads.
heads = ...

# x is (4, 100, 768), there are 12 heads. What is the shape of the output?
# a) (4, 100, 64)   b) (4, 100, 768)   c) (4, 12, 100, 64)
shape = ...

# view after transpose fails. What does contiguous() do about it?
# a) It swaps the axes back.   b) It copies the numbers into reading order.
# c) It changes the strides and copies nothing.
contiguous = ...

# The order of the six steps?
# a) project, transpose, split, attend, project, concat
# b) split, project, transpose, attend, concat, project
# c) project, split, transpose, attend, concat, project
order = ...
