import torch


def merge_heads(context):
    B, num_heads, T, head_dim = context.shape
    context = context.transpose(1, 2)  # (B, T, num_heads, head_dim)
    return context.contiguous().view(B, T, num_heads * head_dim)  # (B, T, num_heads · head_dim)
