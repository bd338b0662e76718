import pytest

from school.check.learner import checked, names

TEXT = """import torch
from torch import nn


class Store:
    def __init__(self, max_tokens):
        self.k = self.v = None

    def add(self, k, v):
        if self.k is not None:
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        self.k, self.v = k, v
        return k, v


class StoreCache(Store):
    def __init__(self, max_tokens):
        super().__init__(max_tokens)


class CausalAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.kept = None

    def attend(self, q, k, v):
        T, S = q.shape[2], k.shape[2]
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = torch.ones(T, S, device=q.device).triu(S - T + 1) > 0
        y = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        return self.o(y.transpose(1, 2).flatten(2))

    def heads(self, x):
        return (f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))

{}
"""
DICT = """    def forward(self, x, bo_nho=None):
        q, k, v = self.heads(x)
        if bo_nho is not None:
            if "k" in bo_nho:
                k, v = torch.cat([bo_nho["k"], k], 2), torch.cat([bo_nho["v"], v], 2)
            bo_nho["k"], bo_nho["v"] = k, v
        return self.attend(q, k, v)"""
RETURNED = """    def forward(self, x, cache=None):
        q, new_k, new_v = self.heads(x)
        k, v = new_k, new_v
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return self.attend(q, k, v), (k, v)"""
OBJECT = """    def forward(self, x, cache: StoreCache = None):
        q, k, v = self.heads(x)
        if cache is not None:
            k, v = cache.add(k, v)
        return self.attend(q, k, v)"""
STEP = """    def forward(self, x):
        return self.attend(*self.heads(x))

    def reset(self):
        self.kept = None

    def step(self, x):
        q, k, v = self.heads(x)
        if self.kept is not None:
            k, v = torch.cat([self.kept[0], k], 2), torch.cat([self.kept[1], v], 2)
        self.kept = k, v
        return self.attend(q, k, v)"""
EDITS = {
    "a dict": (DICT, 'torch.cat([bo_nho["v"], v], 2)', 'torch.cat([v, bo_nho["v"]], 2)'),
    "returned": (RETURNED, '(k, v)"', '(new_k, new_v)"'),
    "an object": (OBJECT, "k, v = cache.add(k, v)", "k, v = cache.add(v, k)"),
    "a method": (STEP, "self.attend(q, k, v)", "self.attend(q, k * 0.5, v)"),
}


@pytest.mark.parametrize("how", EDITS)
def test_a_cache_is_tried_token_by_token_however_it_is_passed(how, tmp_path):
    forward, old, new = EDITS[how]
    verdict = checked(TEXT.replace("{}", forward), tmp_path, "CausalAttention")
    assert names(verdict) == []
    assert "cache" in verdict.checked
    wrong = f'{forward}"'.replace(old, new).removesuffix('"')
    assert wrong != forward
    assert "wrong with a cache" in names(checked(TEXT.replace("{}", wrong), tmp_path, "CausalAttention"))
