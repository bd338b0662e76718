import pytest

from school.check.learner import broken, edited, names
from school.check.learner import checked as checked_text

BEGIN, INIT = "        B, T, E = x.shape\n", "        self.drop = nn.Dropout(dropout)\n"
SCALE = "scores = q @ k.mT / math.sqrt(self.head_dim)\n"
STATES = {
    "a cache that is never reset": (
        "self.kept = None",
        "        if self.kept is not None:\n"
        "            source = torch.cat([self.kept[:1].expand(B, -1, -1), source], 1)\n"
        "        self.kept = source.detach()\n",
    ),
    "outputs by shape": (
        "self.kept = {}",
        "        source = self.kept.setdefault(tuple(x.shape), source)\n"
        "        x = x if context is not None else source\n",
    ),
    "a counter": ("self.calls = 0", "        self.calls += 1\n        x = x * 0.9 ** max(0, self.calls - 3)\n"),
}


@pytest.mark.parametrize("what", STATES)
def test_what_is_kept_for_the_next_call_is_a_mistake(what, tmp_path):
    init, forward = STATES[what]
    verdict = broken(tmp_path, INIT, f"{INIT}        {init}\n", BEGIN, BEGIN + forward)
    assert names(verdict)[0] == "state kept between calls"
    assert verdict.mistakes[0].code.startswith("self.") or what == "outputs by shape"


def test_a_mask_that_is_kept_at_its_first_length_fails_at_another(tmp_path):
    kept = "if not hasattr(self, 'm'):\n            self.m = torch.ones(T, T).triu(1) > 0\n        "
    verdict = broken(tmp_path, SCALE, f"{SCALE}        {kept}scores = scores.masked_fill(self.m, -torch.inf)\n")
    assert names(verdict) == ["state kept between calls"]
    assert "Call 2 of one layer, with 2 texts of 9 tokens, fails" in verdict.mistakes[0].says


def test_padding_that_acts_on_a_later_call_is_a_mistake(tmp_path):
    kept = "self.hidden = key_padding_mask.any(0)\n            "
    later = "        if hasattr(self, 'hidden') and T == len(self.hidden):\n"
    later += "            scores = scores - self.hidden * 1e9\n"
    hide = "scores = scores.masked_fill(key_padding_mask"
    assert "state kept between calls" in names(broken(tmp_path, hide, kept + hide, SCALE, SCALE + later))


def test_a_mask_that_grows_and_weights_that_are_kept_to_look_at_are_right(tmp_path):
    grown = "if getattr(self, 'm', scores[0, 0, :0]).shape[0] < T:\n            self.m = torch.ones(T, T).triu(1) > 0\n"
    hidden = "scores.masked_fill(self.m[:T, :T], -1e30)"
    mask = f"        {grown}        scores = scores if context is not None else {hidden}\n"
    verdict = broken(
        tmp_path, SCALE, SCALE + mask, "        dropped", "        self.seen = weights.detach()\n        dropped"
    )
    assert names(verdict) == []


def test_an_unknown_difference_that_comes_from_a_state_has_its_name(tmp_path):
    counted = "self.calls = getattr(self, 'calls', 0) + 1\n        return self.wo(joined) * 0.9**self.calls"
    assert names(checked_text(edited("loop", "return self.wo(joined)", counted), tmp_path)) == [
        "state kept between calls"
    ]


def test_a_mask_that_is_kept_for_the_next_call_is_a_mistake(tmp_path):
    keep = "if self.kept is None:\n                self.kept = key_padding_mask\n"
    keep += "            key_padding_mask = self.kept\n"
    given = "if key_padding_mask is not None:\n"
    verdict = broken(tmp_path, INIT, f"{INIT}        self.kept = None\n", given, f"{given}            {keep}")
    assert names(verdict) == ["state kept between calls"]


NUMPY = """import numpy as np

class Attention:
    def __init__(self, d_in, d_out):
        self.d_out = d_out
        self.Wq, self.Wk, self.Wv = (np.random.randn(d_in, d_out) for _ in range(3))

    def __call__(self, x):
        Q, K, V = x @ self.Wq, x @ self.Wk, x @ self.Wv
        scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(self.d_out)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ V
"""


def test_weights_of_a_plain_class_that_a_call_changes_are_a_state(tmp_path):
    assert names(checked_text(NUMPY, tmp_path)) == []
    scaled = NUMPY.replace("Q, K, V", "self.Wq /= np.sqrt(self.d_out)\n        Q, K, V").replace(
        " / np.sqrt(self.d_out)\n        e", "\n        e"
    )
    assert names(checked_text(scaled, tmp_path)) == ["state kept between calls"]


def test_a_state_that_nobody_asked_for_is_a_mistake_in_a_layer_that_can_end_it(tmp_path):
    init = f"{INIT}        self.reset()\n\n    def reset(self):\n        self.kept = 0\n"
    flag = ("need_weights=False):", "need_weights=False, use_cache=False):")
    keeps = f"{BEGIN}        x, self.kept = x + self.kept, 0.1\n"
    assert names(broken(tmp_path, INIT, init, *flag, BEGIN, keeps)) == ["state kept between calls"]
    asked = f"{BEGIN}        if use_cache:\n            x, self.kept = x + self.kept, 0.1\n"
    assert broken(tmp_path, INIT, init, *flag, BEGIN, asked).is_right


ONE_TEXT = """import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.register_buffer("bias", torch.zeros(64, 64).masked_fill(torch.ones(64, 64).triu(1) > 0, -torch.inf))

    def forward(self, x, pad=None):
        T, D = x.shape
        bias = self.bias[:T, :T]
        if pad is not None:
            bias[:, pad] = -torch.inf
        return (self.q(x) @ self.k(x).T / D**0.5 + bias).softmax(-1) @ self.v(x)
"""


def test_a_buffer_that_a_mask_of_one_text_changes_is_a_state(tmp_path):
    assert names(checked_text(ONE_TEXT, tmp_path)) == ["state kept between calls"]
    assert checked_text(ONE_TEXT.replace(":T, :T]", ":T, :T].clone()"), tmp_path).is_right


def test_a_buffer_that_a_mask_of_pairs_changes_is_a_state(tmp_path):
    init = f'{INIT}        self.register_buffer("seen", torch.ones(64, 64, dtype=torch.bool))\n'
    mask = "seen = self.seen[:T, :T]\n        if mask is not None:\n            seen &= mask\n        "
    hides = f"{SCALE}        {mask}scores = scores if context is not None else scores.masked_fill(~seen, -torch.inf)\n"
    takes = (
        "key_padding_mask=None, need_weights=False):",
        "mask=None):\n        key_padding_mask = need_weights = None",
    )
    assert names(broken(tmp_path, INIT, init, *takes, SCALE, hides)) == ["state kept between calls"]
    kept = hides.replace("seen &= mask", "seen = seen & mask")
    assert broken(tmp_path, INIT, init, *takes, SCALE, kept).is_right


CACHED = """
import torch
from torch import nn
class CachedAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.kept = heads, None
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
    def reset(self):
        self.kept = None
    def forward(self, x, use_cache=False):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if WHEN self.kept is not None:
            k, v = (torch.cat(pair, dim=2) for pair in zip(self.kept, (k, v)))
        if use_cache:
            self.kept = k.detach(), v.detach()
        T, S = q.shape[2], k.shape[2]
        visible = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize(("when", "found"), [("", ["state kept between calls"]), ("use_cache and", [])])
def test_a_call_without_a_cache_reads_nothing_that_a_call_with_one_has_kept(when, found, tmp_path):
    assert names(checked_text(CACHED.replace("WHEN", when), tmp_path)) == found
