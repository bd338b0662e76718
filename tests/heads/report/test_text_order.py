"""Calls with their texts in another order."""

import pytest
import torch

from heads import dense
from heads.made_calls import made_call
from regard.attention.masks import Causal, causal, documents, padding, window
from regard.attention.masks import dense as dense_mask
from regard.heads.calls.call import TextIds
from regard.heads.intercept.sdpa import CausalFromFirstKey
from regard.heads.report.text_order import call_in_order, latest_orders

ORDER = torch.tensor([2, 2, 0])
DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2], [0, 0, 0, 0, 1]])


@pytest.mark.parametrize(
    "mask",
    [
        causal() & window(2),
        padding([5, 4, 3]) | documents(DOCUMENTS),
        ~padding(DOCUMENTS > 0) & causal(),
        documents(DOCUMENTS[0]),
        dense_mask(torch.rand(3, 1, 5, 5) < 0.5),
        dense_mask(torch.rand(5, 5) < 0.5),
        CausalFromFirstKey(),
    ],
    ids=lambda mask: mask.kind,
)
def test_a_mask_is_that_of_the_texts(mask):
    call = dense.random_call(B=3, T=5, mask=mask)
    expected = mask.dense(5, 5).expand(3, -1, 5, 5)[ORDER]
    assert torch.equal(call_in_order(call, ORDER).attention.mask.dense(5, 5).expand(3, -1, 5, 5), expected)


def test_what_a_call_has_for_each_text_is_reordered_and_what_it_has_for_all_is_not():
    bias, ids = torch.randn(3, 1, 5, 5), torch.arange(15).view(3, 5)
    call = dense.random_call(B=3, T=5, bias=bias, tokens=ids, query_text=TextIds(ids, ids > 3), mask=Causal())
    new = call_in_order(call, ORDER)
    for name in ("q", "k", "bias"):
        assert torch.equal(getattr(new.attention, name), getattr(call.attention, name)[ORDER])
    assert torch.equal(new.origin.tokens, ids[ORDER])
    assert torch.equal(new.origin.query_text.ids, ids[ORDER])
    assert torch.equal(new.origin.query_text.real, (ids > 3)[ORDER])
    same = call_in_order(made_call("", q=call.attention.q, k=call.attention.k, bias=bias[:1]), ORDER)
    assert torch.equal(same.attention.bias, bias[:1])


def test_several_orders_one_after_the_other_are_those_of_the_last_step():
    orders = [(1, torch.tensor([1, 1, 0])), (3, torch.tensor([2, 0, 1]))]
    texts = {0: ["a", "b", "c"], 1: ["b", "b", "a"], 2: ["b", "b", "a"], 3: ["a", "b", "b"]}  # by what they begin with
    reordered = dict(latest_orders(4, orders))
    assert sorted(reordered) == [0, 1, 2]
    for step, order in reordered.items():
        assert [texts[step][i] for i in order] == texts[3]
