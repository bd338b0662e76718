from dataclasses import replace

import torch

from mistakes.cases import mistake, random_case
from regard.mistakes.merging import MISTAKES
from regard.mistakes.mistake import written_in

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


def test_an_output_projection_may_be_applied_twice_or_for_each_head():
    case = random_case()
    concat, project = torch.randn(2, 5, 21, dtype=torch.float64), case.projections["out_proj"]
    twice = mistake(MISTAKES, "output projection applied twice")
    assert twice.act(concat, case).equal(project(project(concat)))
    small = random_case(H=1, D=7).projections["out_proj"]
    per_head = replace(case, projections={**case.projections, "out_proj": small})
    one = mistake(MISTAKES, "output projection for each head")
    assert one.applies(per_head)
    assert not one.applies(case)
    torch.testing.assert_close(one.act(concat, per_head)[..., 7:14], small(concat[..., 7:14]))


def test_the_bias_of_the_output_may_be_left_out_or_added_twice():
    case, concat = random_case(), torch.randn(2, 5, 21, dtype=torch.float64)
    weight, bias = case.projections["out_proj"]
    without, twice = (mistake(MISTAKES, f"bias {how}: of the output") for how in ("left out", "added twice"))
    torch.testing.assert_close(without.act(concat, case), concat @ weight.T)
    torch.testing.assert_close(twice.act(concat, case), concat @ weight.T + 2 * bias)


def test_x_itself_is_returned_only_where_the_code_does_so():
    one = mistake(MISTAKES, "x itself returned")
    assert one.act(None, random_case()) is not None
    assert written_in("    return x\n", [one])
    assert not written_in("    return x + y\n", [one])
