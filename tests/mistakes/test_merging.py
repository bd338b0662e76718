import torch

from mistakes.cases import mistake, random_case
from regard.mistakes.merging import MISTAKES

CONTEXT = torch.randn(2, 3, 5, 7, dtype=torch.float64)


def act(name, number=0):
    return mistake(MISTAKES, name, number).act(CONTEXT, random_case())


def test_a_merge_without_transpose_reads_the_memory_as_it_is():
    assert act("merge without transposing back").equal(CONTEXT.reshape(2, 5, 21))


def test_three_reshapes_hide_a_wrong_order_of_axes():
    wrong = [act("reshape that hides a wrong merge", number) for number in range(3)]
    assert wrong[0].equal(CONTEXT.permute(0, 2, 3, 1).reshape(2, 5, 21))
    assert wrong[1].equal(CONTEXT.transpose(2, 3).reshape(2, 5, 21))
    assert wrong[2].equal(CONTEXT.permute(2, 0, 1, 3).reshape(2, 5, 21))


def test_heads_may_be_averaged_or_summed():
    assert act("heads averaged instead of concatenated").equal(CONTEXT.mean(1))
    assert act("heads summed instead of concatenated").equal(CONTEXT.sum(1))


def test_an_output_projection_can_be_unused_only_where_there_is_one():
    one = mistake(MISTAKES, "unused output projection")
    assert one.applies(random_case())
    assert not one.applies(random_case(out=False))
