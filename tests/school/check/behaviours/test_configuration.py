from pathlib import Path

import pytest

from benchmarks.check.strangers import layers
from regard.school.check.own_file import check_here
from regard.school.check.request import Request
from school.check.learner import LESS, broken, checked, names


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


TEMPERED = """import torch
from torch import nn


class ScaledDotProductAttention(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / self.temperature, dim=-1) @ v
"""


def test_a_temperature_that_is_kept_and_never_used_scales_nothing(tmp_path):
    assert names(checked(TEMPERED, tmp_path)) == []
    verdict = checked(TEMPERED.replace(" / self.temperature", "").replace("-2, -1", "2, 3"), tmp_path)
    assert names(verdict) == ["no scale"]
    heads = TEMPERED.replace("-2, -1", "2, 3")
    assert names(checked(heads, tmp_path)) == []
    learned = heads.replace("= temperature", "= nn.Parameter(torch.tensor(temperature))")
    assert names(checked(learned, tmp_path)) == []


CONFIGURED = """from dataclasses import dataclass
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    dim: int = 32
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 8
    attention_bias: bool = True
    causal: bool = False
    scale: float = None
    sliding_window: int = None
    rope_theta: float = 10000.0
    attn_pdrop: float = 0.0
    resid_pdrop: float = 0.0


class GroupedAttention(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.cfg = cfg.heads, cfg.kv_heads, cfg.head_dim, cfg
        self.q = nn.Linear(cfg.dim, self.heads * self.head_dim, bias=cfg.attention_bias)
        self.k = nn.Linear(cfg.dim, self.kv_heads * self.head_dim, bias=cfg.attention_bias)
        self.v = nn.Linear(cfg.dim, self.kv_heads * self.head_dim, bias=cfg.attention_bias)
        self.o = nn.Linear(self.heads * self.head_dim, cfg.dim)
        self.drop, self.last = nn.Dropout(cfg.attn_pdrop), nn.Dropout(cfg.resid_pdrop)

    def rotate(self, t):
        half = t.shape[-1] // 2
        turns = torch.arange(t.shape[-2])[:, None] * self.cfg.rope_theta ** (-torch.arange(half) / half)
        cos, sin, a, b = turns.cos(), turns.sin(), t[..., :half], t[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x):
        T, cfg = x.shape[1], self.cfg
        q, k, v = (t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        q, k = self.rotate(q), self.rotate(k)
        seen = torch.ones(T, T).tril() > 0 if cfg.causal else torch.ones(T, T) > 0
        seen = seen if cfg.sliding_window is None else seen.triu(1 - cfg.sliding_window)
        scores = q @ k.mT * (cfg.scale or self.head_dim**-0.5)
        weights = self.drop(scores.masked_fill(~seen, -torch.inf).softmax(-1))
        return self.last(self.o((weights @ v).transpose(1, 2).flatten(2)))
"""
FIELDS = [
    ("bias=cfg.attention_bias", "bias=True", "argument is ignored"),
    ("bias=cfg.attention_bias", "bias=not cfg.attention_bias", "bias flag inverted"),
    (
        "self.kv_heads, self.head_dim, self.cfg = cfg.heads, cfg.kv_heads",
        "self.kv_heads, self.head_dim, self.cfg = cfg.heads, cfg.heads",
        "argument is ignored",
    ),
    ("cfg.head_dim, cfg\n", "cfg.dim // cfg.heads, cfg\n", "argument is ignored"),
    ("if cfg.causal else torch.ones(T, T) > 0", "", "argument is ignored"),
    ("if cfg.causal", "if not cfg.causal", "causal flag inverted"),
    ("cfg.scale or ", "", "argument is ignored"),
    ("seen.triu(1 - cfg.sliding_window)", "seen", "argument is ignored"),
    ("self.cfg.rope_theta **", "(self.cfg.rope_theta and 1e4) **", "argument is ignored"),
    ("self.cfg.rope_theta **", "1e4 **", "argument is ignored"),
    ("nn.Dropout(cfg.attn_pdrop)", "nn.Dropout(cfg.resid_pdrop)", "dropout argument is ignored"),
]


@pytest.mark.parametrize(("right", "wrong", "name"), FIELDS, ids=[wrong or right for right, wrong, _ in FIELDS])
def test_every_field_of_a_configuration_must_do_what_it_says(right, wrong, name, tmp_path):
    assert right in CONFIGURED
    source = CONFIGURED.replace(right, wrong)
    if "causal" in right:  # what is hidden is judged first, which positions in the way leave open
        source = source.replace("self.rotate(q), self.rotate(k)", "q, k")
    assert names(checked(source, tmp_path)) == [name]


def test_a_configuration_whose_fields_all_do_what_they_say_is_right(tmp_path):
    verdict = checked(CONFIGURED, tmp_path)
    assert verdict.is_right
    assert {"arguments", "causal flag", "dropout"} <= set(verdict.checked)


def test_what_a_layer_does_not_read_of_the_configuration_of_a_model_is_for_others(tmp_path):
    unread = ("bias=cfg.attention_bias", "bias=False")
    model = ("    dim: int = 32\n", "    dim: int = 32\n    vocab_size: int = 100\n")
    source = CONFIGURED.replace(*unread)
    assert names(checked(source, tmp_path)) == ["argument is ignored"]
    assert checked(source.replace(*model), tmp_path).is_right


def test_what_the_first_weights_are_made_with_is_used(tmp_path):
    begins = "self.drop = nn.Dropout(dropout)\n"
    edits = (
        "bias=True):",
        "bias=True, scale=0.02):",
        begins,
        begins + "        nn.init.normal_(self.q.weight, std=scale)\n",
    )
    assert broken(tmp_path, *LESS, *edits).is_right


def test_a_property_of_a_configuration_is_no_argument(tmp_path):
    made = "    @property\n    def head_dim(self):\n        return self.dim // self.heads\n"
    source = CONFIGURED.replace("    head_dim: int = 8\n", "").replace(
        "    resid_pdrop: float = 0.0\n", f"    resid_pdrop: float = 0.0\n\n{made}"
    )
    assert checked(source, tmp_path).is_right


def test_a_causal_flag_of_a_call_is_tried(tmp_path):
    called = ("forward(self, x):\n", "forward(self, x, causal=False):\n")
    less = (LESS[0], LESS[1].replace(*called))
    for when, found in (("causal", []), ("False", ["argument is ignored"])):
        assert names(broken(tmp_path, *less, SOFTMAX, HIDES.format(when) + SOFTMAX)) == found
    open_flag = (LESS[0], less[1].replace("causal=False", "causal=None"))  # nothing says what None and False are
    assert names(broken(tmp_path, *open_flag, SOFTMAX, HIDES.format("True") + SOFTMAX)) == []


def test_options_by_name_are_a_configuration(tmp_path):
    taken = ("(self, cfg: Config):\n", "(self, **cfg):\n        cfg = Config(**cfg)\n")
    source = CONFIGURED.replace(*taken)
    assert checked(source, tmp_path).is_right
    assert names(checked(source.replace("bias=cfg", "bias=not cfg"), tmp_path)) == ["bias flag inverted"]


SIXTH = Path(__file__).parents[1] / "strangers" / "sixth"


@pytest.mark.parametrize(
    ("part", "file", "names"),
    [
        ("right", "l033_qwen3_like.py", []),
        ("wrong", "l196_qwen3_like.py", ["repeat and interleave confused"]),  # repeated as a whole
    ],
)
def test_heads_that_share_a_key_stand_side_by_side(part, file, names, tmp_path):
    """Norms and rotations are between the keys and the product, so that only two runs show which heads share a key."""
    path = tmp_path / file
    path.write_text(next(source for row, source in layers(part, SIXTH) if row["file"] == file))
    (verdict,) = check_here(path, "", Request())
    assert ([one.name for one in verdict.findings], verdict.problem) == (names, "")
