from benchmarks.check.strangers import layers
from regard.school.check.behaviours.sizes import LENGTHS, longer_context
from school.check.learner import LESS, broken, checked, names

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


LAYOUT = """import torch

def attention(q, k, v, n_heads):
    \"\"\"q, k, v: (B, T, n_heads, d)\"\"\"
    first = lambda t: t if t.shape[1] == n_heads else t.transpose(1, 2)
    y = (first(q) @ first(k).mT / q.shape[-1] ** 0.5).softmax(-1) @ first(v)
    return y if q.shape[1] == n_heads else y.transpose(1, 2)
"""


def test_a_layout_that_is_guessed_from_sizes_is_a_mistake(tmp_path):
    assert names(checked(LAYOUT, tmp_path)) == ["axes of one size confused"]
    assert checked(LAYOUT.replace("t.shape[1] == n_heads", "False").replace("q.shape[1] ==", "0 =="), tmp_path).is_right


def test_a_function_that_drops_an_axis_of_one_is_wrong_for_one_text(tmp_path):
    source = "import torch\n\ndef attention(q, k, v):\n    w = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)\n"
    assert checked(f"{source}    return w @ v\n", tmp_path).is_right
    verdict = checked(f"{source}    return (w @ v).squeeze()\n", tmp_path)
    assert verdict.mistakes[0].says == "For one text (B = 1) the output has another shape: (3, 5, 7)."


BLOCKS = """import torch
from torch import nn

class Attention(nn.Module):
    \"\"\"Exact attention, chunk by chunk.\"\"\"
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        out = torch.zeros_like(q)
        for i in range(0, t - 3, 4):
            out[:, :, i : i + 4] = (q[:, :, i : i + 4] @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, c))
"""


def test_a_last_block_that_is_dropped_is_a_mistake(tmp_path):
    verdict = checked(BLOCKS, tmp_path)
    assert names(verdict) == ["right for some lengths only"]
    assert verdict.mistakes[0].says == "It is right for 8 and for 16 tokens; for 5 it computes something else."
    assert checked(BLOCKS.replace("t - 3", "t"), tmp_path).is_right


FLAT = """import numpy as np

class SelfAttention:
    \"\"\"x (B, T, d)\"\"\"
    def __init__(self, d):
        self.q, self.k, self.v = (np.random.randn(d, d) for _ in range(3))

    def forward(self, x):
        B, T, d = x.shape
        flat = x.reshape(B * T, d)
        s = flat @ self.q @ (flat @ self.k).T / x.shape[-1] ** 0.5
        w = np.exp(s - s.max(-1, keepdims=True))
        return (w / w.sum(-1, keepdims=True) @ (flat @ self.v)).reshape(x.shape)
"""


def test_a_batch_that_is_one_text_is_mixed_where_nothing_else_explains_it(tmp_path):
    assert names(checked(FLAT, tmp_path)) == ["texts of a batch are mixed"]
    across = checked(FLAT.replace("x (B, T, d)", "x (B, T, d), attention across the batch"), tmp_path)
    assert across.status == "unchecked"


def test_a_buffer_for_so_many_texts_need_not_hold_more(tmp_path):
    room = ("self.drop = nn.Dropout(dropout)\n", "self.drop = nn.Dropout(dropout)\n        self.room = 4\n")
    small = (
        "B, T, E = x.shape\n",
        "B, T, E = x.shape\n        x = x + torch.zeros(self.room, 1, 1)[:B].expand(B, 1, 1)\n",
    )
    verdict = broken(tmp_path, *room, *small)
    assert names(verdict) == []


def test_keys_that_are_turned_where_sizes_say_so_are_a_mistake(tmp_path):
    source = "import torch\n\ndef attention(q, k, v):\n    k = k if k.shape[-2] == q.shape[-1] else k.mT\n"
    verdict = checked(f"{source}    return (q @ k / q.shape[-1] ** 0.5).softmax(-1) @ v\n", tmp_path)
    assert names(verdict) == ["axes of one size confused"]


def test_a_squeeze_that_drops_an_axis_of_one_is_named(tmp_path):
    verdict = broken(tmp_path, *LESS, "return (y, weights) if need_weights else y", "return y.squeeze()")
    assert names(verdict) == ["squeeze drops the axis of texts or tokens"]
    assert verdict.mistakes[0].code == "return y.squeeze()"
