import torch

from mistakes.cases import mistake, random_case
from regard.mistakes.formula import Formula
from regard.mistakes.mistake import formula_with, written_in
from regard.mistakes.splitting import MISTAKES


def test_a_view_gives_a_head_some_tokens_whole():
    t = torch.arange(2 * 5 * 21.0).view(2, 5, 21)
    assert mistake(MISTAKES, "split without transpose").act(t, random_case()).equal(t.view(2, 3, 5, 7))


def test_repeated_key_heads_alternate():
    one = mistake(MISTAKES, "repeat and interleave confused")
    case = random_case(H=6, Hkv=3)
    assert one.applies(case)
    assert not one.applies(random_case())
    heads = torch.arange(3.0).view(1, 3, 1, 1)
    assert one.act(heads, case).flatten().tolist() == [0, 1, 2, 0, 1, 2]


def test_an_alternating_split_reads_every_third_number():
    t = torch.arange(21.0).view(1, 1, 21)
    one = mistake(MISTAKES, "heads split alternately, joined whole")
    assert one.act(t, random_case())[0, 1, 0].tolist() == [1, 4, 7, 10, 13, 16, 19]


def test_a_view_of_head_dim_before_heads_makes_other_heads():
    t = torch.arange(21.0).view(1, 1, 21)
    one = mistake(MISTAKES, "heads and head_dim swapped in view")
    assert one.act(t, random_case())[0, 1, 0].tolist() == [3, 4, 5]


def test_keys_or_values_alone_may_be_repeated_in_the_wrong_order():
    case = random_case(H=6, Hkv=3)
    right = Formula().steps(case)
    made = formula_with([mistake(MISTAKES, "repeat and interleave confused: of the values")]).steps(case)
    assert torch.equal(made["shared keys"], right["shared keys"])
    assert torch.equal(made["shared values"][:, 1], right["split values"][:, 1])


def test_batch_and_heads_in_one_view_split_and_join_by_memory():
    one, case = mistake(MISTAKES, "batch and heads mixed"), random_case()
    made = formula_with([one]).steps(case)
    assert torch.equal(made["split"].reshape(6, 5, 7), made["queries"].reshape(6, 5, 7))
    assert torch.equal(made["concat"], made["context"].reshape(2, 5, 21))
    assert written_in("q.view(B * self.heads, -1, d)", [one])
    assert not written_in("q.view(B, T, 3 * d)", [one])
