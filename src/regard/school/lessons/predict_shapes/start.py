"""Which line fails? Five wrong programs, read by their shapes.

Each is meant to be attention for x (4, 100, 768), with 12 heads of 64; W is
nn.Linear(768, 768), and q = k = v for short. Follow the shape line by line
and write (the line that fails, the shape of q before that line), such as
(3, (4, 100, 768)). If no line fails, write 0 and the shape of out. Then
write `product`, the rule behind most of them: the shape of a @ b.
"""

# 1  q = W(x)                            2  q = W(x)
# 2  q = q.view(4, 100, 64, 64)             q = q.view(4, 100, 12, 64)
# 3  q = q.transpose(1, 2)                  q = q.transpose(1, 2)
# 4  scores = q @ q.mT                      scores = q @ q
# 5  out = scores.softmax(-1) @ q           out = scores.softmax(-1) @ q
program_1 = ...
program_2 = ...

# 1  q = W(x)                            4  q = W(x)
# 2  q = q.view(4, 100, 12, 64)             q = q.view(4, 100, 12, 64)
# 3  scores = q @ q.mT                      q = q.transpose(1, 2)
# 4  q = scores.softmax(-1) @ q             q = (q @ q.mT).softmax(-1) @ q
# 5  out = q.view(4, 100, 768)              out = q.transpose(1, 2).view(4, 100, 768)
program_3 = ...
program_4 = ...

# 1  q = W(x.mT)
# 2  q = q.view(4, 100, 12, 64)
# 3  q = q.transpose(1, 2)
# 4  q = (q @ q.mT).softmax(-1) @ q
# 5  out = q.transpose(1, 2).flatten(2)
program_5 = ...


def product(a, b):
    """The shape of a @ b for shapes of at least two axes, or None if it fails.

    (2, 3, 4, 5) and (2, 3, 5, 7) give (2, 3, 4, 7). The axes before the last
    two are equal here, or it fails.
    """
    return ...
