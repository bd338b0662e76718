"""Functions: softmax, causal_mask, split_heads and attention itself, where a learner writes them alone."""
def is_known(function):
    return False
