import torch


def merge_heads(context):
    return torch.cat(context.unbind(dim=1), dim=-1)
