"""Some rows of a call are those rows of the whole formula."""

import torch

from regard.attention.call import Call
from regard.attention.formula import attend_in_steps
from regard.attention.masks import causal
from regard.attention.observers import observe
from regard.attention.positions import alibi_slopes
from regard.attention.rows import attend_rows
from regard.steps import collecting


def test_rows_are_those_of_the_whole_call_with_mask_bias_and_slopes():
    q, k, v = (torch.randn(2, 6, T, 5, dtype=torch.float64) for T in (7, 11, 11))
    bias, slopes = torch.randn(2, 1, 7, 11, dtype=torch.float64), alibi_slopes(6)
    rows = torch.tensor([5, 0, 3])
    call = Call(q=q, k=k, v=v, mask=causal(), scale=0.3, bias=bias, alibi=slopes)
    whole = attend_in_steps(q, k, v, mask=causal(), scale=0.3, bias=bias, alibi=slopes)
    torch.testing.assert_close(attend_rows(call, rows), tuple(t[:, :, rows] for t in whole))


def test_rows_are_no_step_of_a_trace_and_no_attention_of_the_model():
    q = k = v = torch.randn(1, 2, 3, 5)
    noticed = []
    with collecting(lambda *one: noticed.append(one)), observe(lambda *one: noticed.append(one)):
        attend_rows(Call(q=q, k=k, v=v, scale=0.5), torch.tensor([1]))
    assert noticed == []
