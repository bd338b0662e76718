from school.check.learner import broken, names

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
