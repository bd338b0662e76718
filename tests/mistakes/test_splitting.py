import torch

from mistakes.cases import mistake, random_case
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
