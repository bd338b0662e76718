"""One answer to "does this score hide a key", and everybody gives it: also for NaN, which hides nothing."""

import pytest
import torch

import regard
from regard.attention.call import Call
from regard.attention.routes import attend_rows
from regard.heads.calls.visibility import mask_written_out
from regard.heads.inputs.text_arguments import read_padding
from regard.school.check.learner_code import driver
from regard.support.hidden_scores import HIDES_IN_EXAMPLE, is_hidden, may_see, may_see_among
from regard.traces.arrangements import Numbers

HIDING = [-torch.inf, -1e9, torch.finfo(torch.float16).min]
VISIBLE = [0.0, -1e4, 3.5, torch.inf, torch.nan]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_people_write_for_infinity_hides_in_every_dtype(dtype):
    hiding = torch.tensor(HIDING, dtype=torch.float64).clamp(min=torch.finfo(dtype).min).to(dtype)
    assert is_hidden(hiding).all()
    assert is_hidden(hiding + 40).all()  # with the key's own score
    assert may_see(torch.tensor(VISIBLE).to(dtype)).all()
    assert is_hidden(torch.tensor(-1e4).to(dtype) + 40, HIDES_IN_EXAMPLE)  # bfloat16 rounds it to −9984


@pytest.mark.parametrize("number", HIDING)
def test_a_bias_that_hides_a_key_is_a_mask(number):
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, 5, 3) for _ in range(3))
    bias = torch.zeros(5, 5)
    bias[:, 3] = number
    visible = torch.arange(5) != 3
    call = Call(q=q, k=k, v=v.index_fill(2, torch.tensor([3]), torch.nan), bias=bias)
    expected = attend_rows(Call(q=q, k=k, v=v, mask=regard.dense(visible.expand(5, 5))), torch.arange(5))
    torch.testing.assert_close(attend_rows(call, torch.arange(5)), expected)


def test_a_bias_of_nan_is_visible_and_makes_its_row_nan():
    q = k = v = torch.ones(1, 1, 3, 2)
    bias = torch.zeros(3, 3)
    bias[1, 2] = torch.nan
    out, weights = attend_rows(Call(q=q, k=k, v=v, bias=bias), torch.arange(3))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert out.isnan()[0, 0, :, 0].tolist() == theirs.isnan()[0, 0, :, 0].tolist() == [False, True, False]
    assert weights[0, 0, 1].isnan().all()


def test_the_mask_of_scores_counts_a_nan_as_visible():
    scores = torch.zeros(5, 5).masked_fill(~torch.ones(5, 5).tril().triu(-1).bool(), -1e9)
    assert mask_written_out(may_see_among(scores)[None, None]).name == "causal & window(2)"
    scores[3, 0] = torch.nan
    seen = mask_written_out(may_see_among(scores)[None, None]).dense(5)[0, 0]
    assert seen.int()[3].tolist() == [1, 0, 1, 1, 0]


@pytest.mark.parametrize("number", HIDING)
def test_a_float_key_padding_mask_hides_by_the_same_numbers(number):
    hidden = torch.tensor([[0.0, 0.0, number], [0.0, torch.nan, 0.5]])
    assert read_padding({"src_key_padding_mask": hidden}).tolist() == [[True, True, False], [True, True, True]]


def test_a_trace_and_the_driver_hide_the_same_scores():
    scores = torch.tensor([[0.5, -1e4, -1e9], [torch.nan, 2.0, -torch.inf]])
    assert Numbers(scores).hidden.tolist() == [[False, True, True], [False, False, True]]
    assert driver.HIDES_IN_EXAMPLE == HIDES_IN_EXAMPLE
