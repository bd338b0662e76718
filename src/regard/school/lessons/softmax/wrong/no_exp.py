# named: no exponential
def softmax(scores):
    return scores / scores.sum()
