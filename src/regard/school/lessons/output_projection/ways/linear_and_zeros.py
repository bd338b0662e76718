import torch


def merge_heads(context):
    return context.transpose(1, 2).flatten(2)


def output(context, weight, bias):
    return torch.nn.functional.linear(merge_heads(context), weight, bias)


def added_by_head(context, weight, h):
    alone = torch.zeros_like(context)
    alone[:, h] = context[:, h]  # all other heads are silent
    return torch.nn.functional.linear(merge_heads(alone), weight)
