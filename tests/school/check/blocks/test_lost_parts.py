"""Blocks, stacks and models that hold modules which change nothing, or one layer several times."""

import pytest

from regard.school.check.blocks.wiring import check_wiring
from regard.school.check.own_file import check_here
from regard.school.check.request import Request
from school.check.learner import subject_of

LAYERS = '''
import torch
from torch import nn

class SelfAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out((torch.softmax(q @ k.mT / q.size(-1) ** 0.5, -1) @ v).transpose(1, 2).flatten(2))

class Layer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.norm, self.attn, self.other = nn.LayerNorm(d_model), SelfAttention(d_model, num_heads), BESIDE
        self.register_buffer("gate", torch.zeros(1))
    def forward(self, x, memory=None):
        LAYER

class Stack(nn.Module):
    """A stack of layers. WORDS"""
    def __init__(self, d_model, num_heads, num_layers):
        super().__init__()
        self.layers = nn.ModuleList(MADE)
    def forward(self, x):
        STACK
'''
RIGHT_LAYER = "return x + self.attn(self.norm(x))"
CHAINED = "for layer in self.layers: x = layer(x)\n        return x"
EACH = "Layer(d_model, num_heads) for _ in range(num_layers)"
SAME = "[Layer(d_model, num_heads)] * num_layers"


def source(layer=RIGHT_LAYER, stack=CHAINED, made=EACH, beside="None", words=""):
    text = LAYERS.replace("LAYER", layer)
    text = text.replace("STACK", stack).replace("MADE", made).replace("BESIDE", beside)
    return text.replace("WORDS", words)


def names_of(name, text, tmp_path):
    wiring = check_wiring(subject_of(text, tmp_path, name), Request())
    return [] if wiring is None else [one.name for one in wiring.findings]


@pytest.mark.parametrize(
    "stack",
    [
        "for layer in self.layers: y = layer(x)\n        return y",
        "for layer in self.layers: return layer(x)",
        "return self.layers[-1](x)",
        "outs = [layer(x) for layer in self.layers]\n        return outs[0]",
    ],
)
def test_every_layer_of_a_stack_changes_its_output(stack, tmp_path):
    assert names_of("Stack", source(stack=stack), tmp_path) == ["layer without effect"]


@pytest.mark.parametrize(
    "stack",
    [
        CHAINED,
        "return nn.Sequential(*self.layers)(x)",
        "return sum(layer(x) for layer in self.layers)",
        "outs = [x := layer(x) for layer in self.layers]\n        return outs[-1], outs",
    ],
)
def test_a_stack_that_uses_all_its_layers_is_right(stack, tmp_path):
    assert names_of("Stack", source(stack=stack), tmp_path) == []


@pytest.mark.parametrize(
    ("made", "words", "found"),
    [
        (SAME, "", ["layers share their weights"]),
        (SAME, "No weight sharing.", ["layers share their weights"]),
        (SAME, "All layers share one set of weights, as in ALBERT.", []),
        (EACH, "", []),
    ],
)
def test_one_layer_in_a_list_several_times_is_told_unless_it_is_meant(made, words, found, tmp_path):
    assert names_of("Stack", source(made=made, words=words), tmp_path) == found


@pytest.mark.parametrize(
    "layer",
    [
        "return x + self.norm(x)",
        "y = self.attn(x)\n        y = self.norm(x)\n        return x + y",
        "return x + 0 * self.attn(self.norm(x))",
        "return x + self.gate * self.attn(self.norm(x))",
        "self.attn(self.norm(x))\n        return x",
    ],
)
def test_attention_that_does_not_reach_the_output_is_told(layer, tmp_path):
    path = tmp_path / "homework.py"
    path.write_text(source(layer))
    assert "attention without effect" in [one.name for v in check_here(path, "", Request()) for one in v.mistakes]


CROSS = "nn.MultiheadAttention(d_model, num_heads, batch_first=True)"
GIVEN = "if memory is not None: x = x + self.other(x, memory, memory)[0]\n        " + RIGHT_LAYER


@pytest.mark.parametrize(
    ("layer", "beside", "found"),
    [
        (RIGHT_LAYER, CROSS, ["module never used"]),
        (RIGHT_LAYER, "nn.Sequential(nn.Linear(d_model, 5), nn.ReLU(), nn.Linear(5, d_model))", ["module never used"]),
        (GIVEN, CROSS, []),
        (RIGHT_LAYER, "nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))", []),
        (RIGHT_LAYER, "nn.LayerNorm(d_model)", []),
        ("return x + self.attn(self.norm(x)), self.other(x)", "nn.Linear(d_model, 5)", []),
        ("if memory is None: return x\n        " + RIGHT_LAYER, "None", []),
    ],
)
def test_a_module_that_nothing_reads_is_told_and_one_that_an_argument_switches_on_is_not(
    layer, beside, found, tmp_path
):
    assert names_of("Layer", source(layer, beside=beside), tmp_path) == found


def test_a_list_from_which_the_caller_chooses_is_no_stack(tmp_path):
    text = source(stack="return self.layers[language](x)")
    assert (
        names_of(
            "Stack",
            text.replace(
                "forward(self, x):\n        return self.l", "forward(self, x, language=0):\n        return self.l"
            ),
            tmp_path,
        )
        == []
    )


def test_heads_that_are_one_head_are_told(tmp_path):
    heads = LAYERS.replace("SelfAttention", "Head").replace("class Layer", "class Unused")
    heads = heads.replace("MADE", "[Head(d_model, 1)] * num_heads").replace("self.layers", "self.heads")
    heads = heads.replace("STACK", "return sum(head(x) for head in self.heads)").replace("BESIDE", "None")
    assert names_of("Stack", heads.replace("LAYER", "return x"), tmp_path) == ["heads share their weights"]


def test_a_mistake_that_has_another_name_is_told_once(tmp_path):
    path = tmp_path / "homework.py"
    returned = LAYERS.partition("class Layer")[0].replace("return self.out(", "y = self.out(") + "        return x\n"
    path.write_text(returned)
    (verdict,) = check_here(path, "", Request())
    assert [one.name for one in verdict.mistakes] == ["x itself returned"]


HANDED = "x = x + self.attn(self.norm(x), mask)\n        return x + self.other(x)"
MASKED = source(HANDED, beside="nn.Linear(d_model, d_model)").replace("memory=None", "mask=None")
MASKED = MASKED.replace("def forward(self, x):\n        q, k", "def forward(self, x, mask=None):\n        q, k")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("self.norm(x), mask)", "self.norm(x))", ["mask not handed on"]),
        ("self.norm(x), mask)", "self.norm(x))  # mask is unused: the caller packs its texts", []),
        ("", "", []),
    ],
)
@pytest.mark.parametrize("name", ["mask", "src_keep", "lengths", "pad_mask"])
def test_a_mask_that_a_block_takes_and_does_not_read_is_told(name, old, new, found, tmp_path):
    assert names_of("Layer", MASKED.replace(old, new).replace("mask", name), tmp_path) == found
