import torch

from regard.school.check.check import check
from school.check.learner import LESS, broken, names

SOFTMAX = "weights = scores.softmax(-1)"
ONCE = "again = (x[:, :, None] == x[:, None]).all(-1).triu(1).any(1)[:, None, None]\n        "


def test_equal_tokens_that_count_once_are_found(tmp_path):
    hides = f"{ONCE}scores = scores.masked_fill(again, -torch.inf)\n        {SOFTMAX}"
    assert names(broken(tmp_path, *LESS, SOFTMAX, hides)) == ["wrong for equal tokens"]


def test_a_layer_that_reads_memory_as_it_lies_is_found(tmp_path):
    begin = "B, T, E = x.shape\n"
    strided = begin + "        x = source = torch.as_strided(x, (B, T, E), (T * E, E, 1))\n"
    verdict = broken(tmp_path, *LESS, begin, strided)
    assert names(verdict) == ["wrong for tensors that are not contiguous"]
    assert "as_strided" in verdict.mistakes[0].code


def test_a_function_that_needs_contiguous_tensors_and_fails_is_not_wrong():
    def attention(q, k, v):
        rows = q.view(-1, q.shape[-1]).view(q.shape)
        return torch.softmax(rows @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v

    assert check(attention).status == "right"
