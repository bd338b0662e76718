import torch


def output(context, weight, bias):
    parts = weight.unflatten(1, context.shape[1::2])  # (E, H, D)
    return torch.einsum("bhtd,ehd->bte", context, parts) + bias


def added_by_head(context, weight, h):
    parts = weight.unflatten(1, context.shape[1::2])  # (E, H, D)
    return torch.einsum("btd,ed->bte", context[:, h], parts[:, h])


def merge_heads(context):
    return context.transpose(1, 2).flatten(2)
