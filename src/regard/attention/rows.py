"""Some rows of an attention call: the formula for a few queries, also where T × S weights would not fit into memory."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import Call
from regard.attention.formula import attend_in_steps
from regard.attention.masks import to_four_axes
from regard.attention.observers import unobserved
from regard.attention.positions import alibi_bias
from regard.attention.precision import at_least_float32
from regard.steps import collecting


def attend_rows(call: Call, rows: Int[Tensor, "R"]) -> tuple[Float[Tensor, "B H R Dv"], Float[Tensor, "B H R S"]]:
    """The formula for some queries of a call, of any kind: their context and their weights (before dropout).

    >>> import regard
    >>> q = k = v = torch.eye(2).view(1, 1, 2, 2)
    >>> attend_rows(Call(q=q, k=k, v=v, mask=regard.causal()), torch.tensor([0]))[1]
    tensor([[[[1., 0.]]]])
    """
    q, k, v = call.qkv
    cols = torch.arange(k.shape[2], device=call.device)
    allowed = to_four_axes(call.mask.tile(rows, cols, call.shift)).expand(-1, -1, len(rows), len(cols))
    bias = None if call.bias is None else at_least_float32(to_four_axes(call.bias))
    if bias is not None and bias.shape[2] > 1:
        bias = bias[:, :, rows]
    if call.alibi is not None:
        slope = alibi_bias(call.alibi, rows, cols, call.shift, q.dtype)[None]
        bias = slope if bias is None else bias + slope
    with collecting(lambda *_: None), unobserved():  # neither a step of a trace nor an attention of the model
        return attend_in_steps(q[:, :, rows], k, v, mask=allowed, scale=call.scale, dropout=call.dropout, bias=bias)
