def softmax(scores):
    return (scores - scores.logsumexp(dim=0)).exp()
