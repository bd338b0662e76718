from regard.school.grading.similar import FEWEST, SimilarPair, find_similar, fingerprints
from school.grading.submissions import NO_MASK, RIGHT

RENAMED = (
    RIGHT.replace("scores", "s").replace("future", "hidden").replace("CausalAttention", "Mine")
    .replace("-torch.inf)", "-torch.inf)  # my own idea").replace("triu(1)", "triu(2)")
)  # fmt: skip
OTHER = '''import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Mine."""

    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.heads = heads

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
'''


def pairs(*sources, starter="", percent=80):
    prints = {chr(97 + i): fingerprints(source) for i, source in enumerate(sources)}
    return find_similar(prints, percent, fingerprints(starter))


def test_other_names_numbers_and_comments_do_not_hide_a_copy():
    assert pairs(RIGHT, RENAMED) == [SimilarPair("a", "b", 100)]


def test_a_docstring_is_no_difference():
    assert pairs(OTHER, OTHER.replace('    """Mine."""\n\n', "")) == [SimilarPair("a", "b", 100)]


def test_different_code_is_not_pointed_out_and_pairs_are_sorted():
    found = pairs(RIGHT, OTHER, NO_MASK, RENAMED, percent=50)
    assert [(one.one, one.other) for one in found] == [("a", "d"), ("a", "c"), ("c", "d")]
    assert found[0].percent == 100
    assert found[1].percent == found[2].percent < 100


def test_starter_code_is_left_out():
    assert len(fingerprints(OTHER)) > FEWEST
    assert pairs(OTHER, OTHER, starter=OTHER) == []
    mine, theirs = (f"{OTHER}\n\ndef f(a): {body}" for body in ("return a + 1", "print(a)"))
    assert len(pairs(mine, theirs)) == 1
    assert pairs(mine, theirs, starter=OTHER) == []


def test_what_many_have_is_no_copy():
    assert len(pairs(*[RIGHT] * 10)) == 45
    assert pairs(*[RIGHT] * 11) == []


def test_too_little_code_and_what_is_no_python_are_not_compared():
    assert pairs("x = 3", "x = 3") == []
    assert fingerprints("def") == fingerprints("\0") == fingerprints("(" * 5000) == []
    assert pairs("def", "def") == []


def test_deep_code_is_read_without_recursion():
    assert len(fingerprints("x = " + "a + " * 900 + "a")) > 0
