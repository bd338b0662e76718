import torch
from torch import Tensor


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """(batch, heads, tokens, head_dim) each; returns the context and the weights."""
    t, d = query.shape[-2:]
    logits = torch.einsum("...td,...sd->...ts", query, key).div(d**0.5)
    logits = torch.where(torch.ones(t, t, device=query.device).tril().bool(), logits, -torch.inf)
    logits = logits - logits.max(dim=-1, keepdim=True).values
    weights = logits.exp() / logits.exp().sum(dim=-1, keepdim=True)
    return torch.einsum("...ts,...sd->...td", weights, value), weights
