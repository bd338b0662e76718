import torch


def simplified_attention(x):
    """x: (num_tokens, width) -> context vectors, nothing trainable"""
    attn_scores = x @ x.T
    attn_weights = torch.softmax(attn_scores, dim=0)
    return attn_weights @ x
