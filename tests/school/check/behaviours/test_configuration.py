import pytest

from school.check.learner import LESS, broken, names


def test_a_bias_that_is_always_there_is_an_argument_that_is_ignored(tmp_path):
    verdict = broken(tmp_path, "d_model, bias=bias)", "d_model)")
    assert names(verdict) == ["argument is ignored"]
    assert verdict.mistakes[0].says == "With bias=False and with bias=True it is the same layer."


def test_a_width_of_heads_that_is_overwritten_is_ignored(tmp_path):
    takes = ("num_heads, dropout", "num_heads, d_k=None, dropout")
    assert names(broken(tmp_path, *takes)) == ["argument is ignored"]
    used = (
        "d_model // num_heads\n",
        "d_k or d_model // num_heads\n",
        "/ math.sqrt(self.head_dim)",
        "* self.head_dim**-0.5",
    )
    assert "argument is ignored" not in names(broken(tmp_path, *takes, *used))


def test_one_head_is_attention_too(tmp_path):
    verdict = broken(tmp_path, "scores.softmax(-1)", "scores.softmax(-1) if self.num_heads > 1 else scores")
    assert [one.says for one in verdict.mistakes] == [
        "With 3 heads it is right; with one head it computes something else."
    ]


FLAG = (
    "bias=True):",
    "bias=True, causal=False):",
    "super().__init__()\n",
    "super().__init__()\n        self.hides = causal\n",
)
SOFTMAX = "weights = scores.softmax(-1)"
HIDES = "future = torch.ones(T, T).triu(1) > 0\n        "
HIDES += "scores = scores.masked_fill(future, -torch.inf) if {} else scores\n        "


@pytest.mark.parametrize(
    ("when", "found"),
    [("self.hides", []), ("False", ["argument is ignored"]), ("not self.hides", ["causal flag inverted"])],
)
def test_a_causal_flag_is_tried_with_both_values(when, found, tmp_path):
    verdict = broken(tmp_path, *LESS, *FLAG, SOFTMAX, HIDES.format(when) + SOFTMAX)
    assert names(verdict) == found
