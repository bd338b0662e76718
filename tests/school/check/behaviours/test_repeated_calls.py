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
