import torch


def merge_heads(context):  # (B, H, T, D) → (B, T, H · D)
    return context.transpose(1, 2).flatten(2)


def output(context, weight, bias):
    return merge_heads(context) @ weight.T + bias  # (B, T, E)


def added_by_head(context, weight, h):
    head_dim = context.shape[-1]
    columns = weight[:, h * head_dim : (h + 1) * head_dim]  # (E, head_dim)
    return context[:, h] @ columns.T  # (B, T, E): what head h adds to the output; no bias
