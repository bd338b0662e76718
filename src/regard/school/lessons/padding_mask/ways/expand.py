import torch


def padding_mask(lengths, S):  # lengths is (B,); True = may attend
    positions = torch.arange(S)  # 0, 1, … S - 1
    positions = positions.expand(len(lengths), S)  # (B, S)
    return positions < lengths.unsqueeze(1)


def attend(q, k, v, lengths):
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, T, S)
    may_attend = padding_mask(lengths, k.shape[-2])  # (B, S)
    may_attend = may_attend.unsqueeze(1).unsqueeze(1)
    scores = scores.masked_fill(~may_attend, -torch.inf)
    return scores.softmax(dim=-1) @ v
