import pytest

from school.check.learner import LESS, broken, checked, names

SOFTMAX = "weights = scores.softmax(-1)"


def test_a_softmax_without_the_maximum_overflows(tmp_path):
    verdict = broken(tmp_path, SOFTMAX, "weights = scores.exp() / scores.exp().sum(-1, keepdim=True)")
    assert names(verdict) == ["softmax overflows"]
    assert "scores.exp()" in verdict.mistakes[0].code


def test_scores_that_are_clipped_and_masks_that_leak_are_wrong_for_large_scores(tmp_path):
    assert names(broken(tmp_path, SOFTMAX, "weights = scores.clamp(-30, 30).softmax(-1)")) == ["wrong for large scores"]
    leaks = "scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -20.0)\n        "
    assert "wrong for large scores" in names(broken(tmp_path, SOFTMAX, leaks + SOFTMAX))


def test_rows_that_vanish_when_they_are_masked_after_the_softmax_are_not_judged(tmp_path):
    after = "weights = scores.softmax(-1).tril()\n        weights = weights / weights.sum(-1, keepdim=True)"
    verdict = broken(tmp_path, SOFTMAX, after, causal=True)
    assert "wrong for large scores" not in names(verdict)
    assert any(one.startswith("large scores: it divides 0 by 0") for one in verdict.not_checked)


def test_a_layer_that_runs_in_float32_alone_is_wrong_unless_it_converts_its_input(tmp_path):
    verdict = broken(tmp_path, SOFTMAX, "weights = scores.float().softmax(-1)")
    assert names(verdict) == ["fails in other dtypes"]
    own = ("nn.Dropout(dropout)\n", "nn.Dropout(dropout)\n        self.to(torch.float32)\n")
    converts = ("        source = x if", "        x = x.float()\n        self.float()\n        source = x if")
    assert names(broken(tmp_path, *own, *converts)) == []


def test_right_in_float64_only_is_wrong(tmp_path):
    only = "scores = scores if x.dtype == torch.float64 else scores * 0.9\n        "
    assert names(broken(tmp_path, SOFTMAX, only + SOFTMAX)) == ["wrong in float32"]


def test_an_error_of_a_thousandth_in_float32_is_wrong(tmp_path):
    only = "scores = scores if x.dtype == torch.float64 else scores * 0.998\n        "
    assert names(broken(tmp_path, SOFTMAX, only + SOFTMAX)) == ["wrong in float32"]


NUMPY = '''"""Attention without torch; compare with torch.nn.functional."""
import numpy as np
import torch


def attention(q, k, v):
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return np.matmul(exponentials / exponentials.sum(-1, keepdims=True), v)
'''


def test_a_function_of_arrays_is_tried_with_large_scores_and_never_for_gradients(tmp_path):
    right = checked(NUMPY, tmp_path)
    assert right.is_right
    assert "large scores" in right.checked
    assert "gradients" not in right.checked
    assert names(checked(NUMPY.replace(" - scores.max(-1, keepdims=True)", ""), tmp_path)) == ["softmax overflows"]
    assert names(checked(NUMPY.replace("scores.max(-1, keepdims=True)", "scores.max()"), tmp_path)) == [
        "softmax underflows"
    ]


def test_a_class_of_arrays_is_never_tried_for_gradients_whatever_its_file_speaks_of(tmp_path):
    built = "    def __init__(self, d):\n        self.q, self.k, self.v = (np.random.randn(d, d) for _ in range(3))\n\n"
    called = "    def __call__(self, x):\n        return attention(x @ self.q, x @ self.k, x @ self.v)\n"
    verdict = checked(f"{NUMPY}\n\nclass SelfAttention:\n{built}{called}", tmp_path, "SelfAttention")
    assert verdict.is_right
    assert "gradients" not in verdict.checked


def test_one_maximum_for_all_rows_underflows_with_a_causal_mask_too(tmp_path):
    shifted = "scores = (scores - scores.max()).exp()\n        weights = scores / scores.sum(-1, keepdim=True)"
    assert names(broken(tmp_path, SOFTMAX, shifted)) == ["softmax underflows"]
    hidden = "scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)\n        "
    assert names(broken(tmp_path, SOFTMAX, hidden + shifted)) == ["softmax underflows"]


def documented(text):
    return ("class Attention(nn.Module):\n", f'class Attention(nn.Module):\n    """{text}"""\n')


HIDES = f"scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, {{}})\n        {SOFTMAX}"


@pytest.mark.parametrize(
    "text", ["Runs in float32 and float16.", "For model.half(), too.", "Takes half, bfloat16, float."]
)
def test_a_mask_of_minus_1e9_is_wrong_where_the_text_promises_float16(text, tmp_path):
    verdict = broken(tmp_path, SOFTMAX, HIDES.format("-1e9"), *documented(text))
    assert names(verdict) == ["−1e9 overflows in fp16"]
    assert names(broken(tmp_path, SOFTMAX, HIDES.format("-torch.inf"), *documented(text))) == []
    at_the_top = ("import math\n", f'"""{text}"""\nimport math\n')
    assert names(broken(tmp_path, SOFTMAX, HIDES.format("-1e9"), *at_the_top)) == ["−1e9 overflows in fp16"]


@pytest.mark.parametrize("text", ["Not for float16.", "The second half, or all of it.", "Softmax in float32."])
def test_without_the_promise_it_is_a_warning(text, tmp_path):
    verdict = broken(tmp_path, SOFTMAX, HIDES.format("-1e9"), *documented(text))
    assert names(verdict) == []
    assert [one.name for one in verdict.warnings] == ["−1e9 overflows in fp16"]


def test_a_mask_of_float32_fails_in_the_dtype_of_the_weights(tmp_path):
    added = f"scores = scores + torch.full((T, T), -torch.inf, dtype=torch.float32).triu(1)\n        {SOFTMAX}"
    told = documented("Runs in the dtype of its weights.")
    assert names(broken(tmp_path, *LESS, SOFTMAX, added)) == []
    assert names(broken(tmp_path, *LESS, SOFTMAX, added, *told)) == ["fails in other dtypes"]
    assert names(broken(tmp_path, *LESS, SOFTMAX, added.replace("torch.float32", "x.dtype"), *told)) == []


def test_an_output_in_float32_is_wrong_where_the_text_promises_the_dtype_of_the_input(tmp_path):
    right = """import torch


def attention(q, k, v):
    \'\'\'Attention in float32; the output has the same dtype as q.\'\'\'
    dtype = q.dtype
    q, k, v = q.float(), k.float(), v.float()
    return (torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v).to(dtype)
"""
    assert names(checked(right, tmp_path)) == []
    wrong = right.replace(".to(dtype)", "")
    assert names(checked(wrong, tmp_path)) == ["output has another dtype"]
    assert names(checked(wrong.replace("; the output has the same dtype as q", ""), tmp_path)) == []
