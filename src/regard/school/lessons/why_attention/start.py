"""Why attention? Five short questions.

Write the letter of your answer in quotes: answer_1 = "a".
Each wrong letter gets its reason; try them if you like.
"""

# 1. A recurrent network reads "The cat that we saw by the river sat" word by
#    word and keeps one vector of fixed size. How does "cat" reach "sat"?
#    a  directly: the network looks back at the word
#    b  through that vector, which every word between them has changed
#    c  not at all: a recurrent network knows only the last word
answer_1 = ...

# 2. And with attention?
#    a  through all words between them, one layer for each
#    b  only if both words are next to each other
#    c  by one dot product, at any distance
answer_2 = ...

# 3. What is the price of that, for T words?
#    a  T × T scores: for twice the words, four times as many
#    b  T steps that must run one after the other
#    c  one more weight matrix for each word
answer_3 = ...

# 4. In a library you search for "cats", find the card "animals", and take the
#    book home. Which is query, which is key, which is value?
#    a  query: the book    key: the card       value: the search
#    b  query: the card    key: the search     value: the book
#    c  query: the search  key: the card       value: the book
answer_4 = ...

# 5. What does a word get from attention?
#    a  the value of the one key that matches best
#    b  a mix of all values, each with its own share
#    c  a mix of all keys, each with its own share
answer_5 = ...
