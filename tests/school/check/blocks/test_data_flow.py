"""Blocks whose parts are methods and lines of forward, joined in ways that are right, wrong and unknown."""

import pytest

from regard.school.check.blocks.wiring import check_wiring
from regard.school.check.request import Request
from school.check.learner import subject_of

SOURCE = '''
import torch
from torch import nn
import torch.nn.functional as F

class Own(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g

class Block(nn.Module):
    """WORDS"""
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.h = num_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.mha = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.n1, self.n2, self.n3, self.n4 = (nn.LayerNorm(d_model) for _ in range(4))
        self.own1, self.own2 = Own(d_model), Own(d_model)
        self.s1, self.s2 = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.zeros(1))
        self.wq, self.wk, self.wv = (nn.Linear(d_model, d_model) for _ in range(3))
        self.drop = nn.Dropout(0.1)
    def A(self, x):
        q, k, v = (t.unflatten(2, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        a = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, -1)
        return self.drop(self.out((a @ v).transpose(1, 2).flatten(2)))
    def M(self, x, memory):
        return self.mha(x, memory, memory, need_weights=False)[0]
    def N(self, x):
        q, k, v = self.n1(self.wq(x)), self.n2(self.wk(x)), self.wv(x)
        q, k, v = (t.unflatten(2, (self.h, -1)).transpose(1, 2) for t in (q, k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    def F(self, x):
        return self.drop(self.down(F.gelu(self.up(x))))
    def forward(self, x, mask=None):
        FORWARD
'''


def block(forward, words=""):
    return SOURCE.replace("FORWARD", "\n        ".join(forward.split("; "))).replace("WORDS", words)


RIGHT = {
    "pre": "x = x + self.A(self.n1(x)); return x + self.F(self.n2(x))",
    "post": "x = self.n1(x + self.A(x)); return self.n2(x + self.F(x))",
    "branch": "x = x + self.n1(self.A(x)); return x + self.n2(self.F(x))",
    "sandwich": "x = x + self.n2(self.A(self.n1(x))); return x + self.n4(self.F(self.n3(x)))",
    "parallel": "y = self.n1(x); return x + self.A(y) + self.F(y)",
    "parallel, two norms": "return x + self.A(self.n1(x)) + self.F(self.n2(x))",
    "a norm at the end": "x = x + self.A(self.n1(x)); x = x + self.F(self.n2(x)); return self.n3(x)",
    "layer scale": "x = x + self.s1 * self.A(self.n1(x)); return x + self.s1 * self.F(self.n2(x))",
    "rezero": "x = x + self.s2 * self.A(x); return x + self.s2 * self.F(x)",
    "scaled residual": "x = self.n1(1.7 * x + self.A(x)); return self.n2(1.7 * x + self.F(x))",
    "half a feed-forward": "x = x + self.A(self.n1(x)); return x + 0.5 * self.F(self.n2(x))",
    "in place": "x = x.clone(); x += self.A(self.n1(x)); x += self.F(self.n2(x)); return x",
    "own norms": "x = x + self.A(self.own1(x)); return x + self.F(self.own2(x))",
    "own norms after": "x = self.own1(x + self.A(x)); return self.own2(x + self.F(x))",
    "a tuple": "x = x + self.A(self.n1(x)); return x + self.F(self.n2(x)), None",
    "two attentions": "x = x + self.A(self.n1(x)); x = x + self.M(self.n2(x), x); return x + self.F(self.n3(x))",
    "two attentions, post": (
        "x = self.n1(x + self.A(x)); x = self.n2(x + self.M(x, x)); return self.n3(x + self.F(x))"
    ),
    "tokens first inside": (
        "x = x.transpose(0, 1); x = x + self.A(self.n1(x).transpose(0, 1)).transpose(0, 1); "
        "x = x + self.F(self.n2(x)); return x.transpose(0, 1)"
    ),
    "a long skip": "y = x + self.A(self.n1(x)); y = y + self.F(self.n2(y)); return x + y",
    "one branch": "return x + self.F(self.n2(self.A(self.n1(x))))",
    "attention alone": "return self.A(self.n1(x))",
    "a norm of the input of a stack": (
        "x = self.n1(x); x = x + self.A(self.n2(x)); x = x + self.M(self.n2(x), x); x = x + self.M(self.n3(x), x); "
        "return x + self.F(self.n4(x))"
    ),
    "a norm of the input, then pre": "x = self.n3(x); x = x + self.A(self.n1(x)); return x + self.F(self.n2(x))",
    "a norm of the input, then post": "x = self.n3(x); x = self.n1(x + self.A(x)); return self.n2(x + self.F(x))",
    "normed queries": "return self.N(x)",
    "normed queries in a block": "x = x + self.N(self.n3(x)); return x + self.F(self.n4(x))",
    "a norm inside the attention": "x = x + self.out(self.n2(self.A(self.n1(x)))); return x + self.F(self.n3(x))",
}
WRONG = {
    "no residual around the attention": "x = self.n1(self.A(x)); return self.n2(x + self.F(x))",
    "no residual around the feed-forward": "x = x + self.A(self.n1(x)); return self.F(self.n2(x))",
    "residual of the block's input around the feed-forward": (
        "y = self.n1(x + self.A(x)); return self.n2(x + self.F(y))"
    ),
    "residual of the normed input around the attention": (
        "x = self.n1(x); x = x + self.A(x); return x + self.F(self.n2(x))"
    ),
    "norm applied twice": "x = x + self.A(self.n1(x)); return x + self.F(self.n2(self.n1(x)))",
    "residual added twice": "y = x + self.A(self.n1(x)); x = x + y; return x + self.F(self.n2(x))",
}
POST = "LayerNorm(x + Sublayer(x)), as in the paper."


def names_of(source, tmp_path):
    wiring = check_wiring(subject_of(source, tmp_path, "Block"), Request())
    ours = [] if wiring is None else wiring.findings
    return [one.name for one in ours if one.name != "attention without effect"]


@pytest.mark.parametrize("way", RIGHT)
def test_no_block_that_people_write_is_wrong(way, tmp_path):
    assert names_of(block(RIGHT[way]), tmp_path) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_block_without_modules_for_its_parts_is_told_what_is_joined_wrongly(name, tmp_path):
    assert names_of(block(WRONG[name]), tmp_path) == [name]


@pytest.mark.parametrize(
    ("way", "words", "found"),
    [
        ("post", POST, []),
        ("own norms after", POST, []),
        ("branch", POST, ["norm in the wrong place"]),
        ("pre", "x + f(norm(x)) instead of norm(x + f(x))", []),
    ],
)
def test_the_formula_in_the_words_of_a_block_is_what_it_promises(way, words, found, tmp_path):
    assert names_of(block(RIGHT[way], words), tmp_path) == found


def test_a_post_norm_for_the_attention_and_a_pre_norm_for_the_rest_is_no_promised_post_norm(tmp_path):
    mixed = "x = self.n1(x + self.A(x)); return x + self.F(self.n2(x))"
    assert names_of(block(mixed), tmp_path) == []
    assert names_of(block(mixed, POST), tmp_path) == ["norm in the wrong place"]


def test_what_says_that_it_has_no_residual_needs_none(tmp_path):
    forward = WRONG["no residual around the attention"]
    assert names_of(block(forward, "A block without residual around the attention."), tmp_path) == []
