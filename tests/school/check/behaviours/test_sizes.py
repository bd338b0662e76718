from benchmarks.check.strangers import layers
from regard.school.check.behaviours.sizes import LENGTHS, longer_context
from school.check.learner import broken, checked, names

SCORES = "scores = q @ k.mT / math.sqrt(self.head_dim)\n"


def test_texts_of_a_batch_that_change_each_other_are_mixed(tmp_path):
    mixed = "y = y + (0.1 * y.roll(1, 0) if B == 3 and T == 4 else 0)"
    # The formula shows that it is something else for three texts; without the formula, that it is another than alone.
    verdict = broken(tmp_path, "        return", f"        {mixed}\n        return")
    assert (
        verdict.mistakes[0].says == "For 3 texts of 4 tokens it computes something else than for 2 texts of 5 tokens."
    )


def test_a_text_longer_than_a_block_that_is_computed_otherwise_is_a_mistake(tmp_path):
    verdict = broken(tmp_path, SCORES, SCORES + "        k, v, scores = k[:, :, :64], v[:, :, :64], scores[..., :64]\n")
    assert names(verdict) == ["wrong for longer texts"]
    assert verdict.mistakes[0].says == "For 33 tokens it is right; for 65 tokens it computes something else."


def test_a_window_that_the_code_speaks_of_is_right_where_it_is_one(tmp_path):
    window = "near = torch.ones(T, T).triu(-20).tril() > 0  # a sliding window\n        "
    init = "self.drop = nn.Dropout(dropout)\n        self.window = 21"
    hides = (
        f"{SCORES}        {window}scores = scores if context is not None else scores.masked_fill(~near, -torch.inf)\n"
    )
    verdict = broken(tmp_path, "self.drop = nn.Dropout(dropout)", init, SCORES, hides)
    assert names(verdict) == []
    other = broken(tmp_path, SCORES, hides)
    assert other.not_checked == ["lengths: of more than 17 tokens: the code speaks of a window"]


def test_a_window_that_keeps_the_oldest_tokens_is_named(tmp_path):
    near = (
        "i = torch.arange(T)\n        near = torch.where(i[:, None] < 21, i <= i[:, None], i < 21)  # window\n        "
    )
    init = "self.drop = nn.Dropout(dropout)\n        self.window = 21"
    hides = f"{SCORES}        {near}scores = scores if context is not None else scores.masked_fill(~near, -torch.inf)\n"
    verdict = broken(tmp_path, "self.drop = nn.Dropout(dropout)", init, SCORES, hides)
    assert names(verdict) == ["window keeps the oldest tokens"]


def test_right_for_one_text_only_is_a_mistake_where_a_batch_is_computed_otherwise(tmp_path):
    alone = (
        "        B, T, E = x.shape\n",
        "        T, E = x.shape[-2:]\n        B = x.shape[:-2]\n",
        "transpose(1, 2) for t in heads",
        "transpose(-3, -2) for t in heads",
        "transpose(1, 2).reshape(B, T, E)",
        "transpose(-3, -2).reshape(*B, T, E)",
        "softmax(-1)",
        "softmax(2)",
    )
    assert broken(tmp_path, *alone[:-2]).is_right
    assert names(broken(tmp_path, *alone)) == ["right for one text only"]


def test_a_longer_context_is_asked_for_in_arguments_and_configurations():
    room = LENGTHS[-1] + 9
    assert longer_context({"d_model": 21, "context_length": 11}) == {"d_model": 21, "context_length": room}
    assert longer_context({"config": {"block_size": 11, "window": 3}}) == {"config": {"block_size": room, "window": 3}}
    assert longer_context(None) is None


def test_texts_that_are_mixed_in_a_layer_with_positions_are_named(tmp_path):
    source = next(text for row, text in layers("right") if row["file"] == "074_rope_module_interleaved.py")
    assert checked(source, tmp_path).is_right
    last = [line for line in source.splitlines() if line.strip().startswith("return")][-1]
    indent, value = last.split("return")
    mixed = f"{indent}y ={value}\n{indent}return y + (0.1 * y.roll(1, 0) if len(y) == 3 else 0)"
    assert "texts of a batch are mixed" in names(checked(source.replace(last, mixed), tmp_path))
