import pytest

from regard.school.check.learner_code.loading import load_file
from regard.school.check.learner_code.selection import mentioned_words, select, what_to_check

COMPUTES = "        return torch.softmax(x @ x.mT, -1) @ x\n"
TOP = "import torch\nimport numpy as np\nfrom torch import nn\n"


def layer(name, *uses, base="nn.Module", body=COMPUTES):
    made = "".join(f"        self.{one.lower()} = {one}()\n" for one in uses)
    init = f"    def __init__(self):\n        super().__init__()\n{made}"
    return f"class {name}({base}):\n{init}    def forward(self, x):\n{body}"


def selected(tmp_path, text):
    path = tmp_path / "homework.py"
    path.write_text(TOP + text)
    own = load_file(path).own
    found = select(own)
    assert what_to_check(own) == found.judged
    names = [[one.described["name"] for one in group] for group in (found.judged, found.wholes)]
    return names[0], {a.described["name"]: b.described["name"] for a, b in found.parts}, names[1]


PASSES = "        return x\n"
FFN = layer("FeedForward", body=PASSES)
BLOCK = layer("Block", "MultiHeadAttention", "FeedForward", body=PASSES)
MODEL = layer("GPT", "Block", body="        return torch.softmax(x @ x.mT, -1)\n")
HEADS = layer("Head") + layer("MultiHeadAttention", "Head", body=PASSES)
SOFTMAX = "def softmax(x): return np.exp(x) / np.exp(x).sum()\n"
NUMPY = "class Atencion:\n    def __call__(self, x): return softmax(x @ x.T) @ x\n"
SDPA = "def attend(q, k, v): return torch.softmax(q @ k.mT, -1) @ v\n"


@pytest.mark.parametrize(
    ("text", "judged", "parts", "wholes"),
    [
        (HEADS, ["MultiHeadAttention"], {"Head": "MultiHeadAttention"}, []),
        (
            HEADS + FFN + BLOCK + MODEL,
            ["MultiHeadAttention"],
            {"Head": "MultiHeadAttention"},
            ["FeedForward", "Block", "GPT"],
        ),
        (layer("Attention") + layer("FastAttention", base="Attention"), ["Attention", "FastAttention"], {}, []),
        (layer("SelfAttention") + layer("CrossAttn"), ["SelfAttention", "CrossAttn"], {}, []),
        (layer("SelfAttention") + layer("Mixer"), ["SelfAttention", "Mixer"], {}, []),
        (layer("Attention", body=PASSES) + layer("Head", body=PASSES), ["Attention"], {}, ["Head"]),
        (SOFTMAX + NUMPY, ["Atencion"], {}, []),
        (
            SDPA + layer("Attention", body="        return attend(x, x, x)\n"),
            ["Attention"],
            {"attend": "Attention"},
            [],
        ),
        (SDPA + layer("Attention"), ["Attention", "attend"], {}, []),
        (SDPA + layer("Layer", body="        return attend(x, x, x)\n"), ["Layer"], {"attend": "Layer"}, []),
        (SOFTMAX + "def attention(q, k, v): return softmax(q @ k) @ v\n", ["attention"], {"softmax": "attention"}, []),
        (SOFTMAX + "def causal_mask(T): return np.tri(T)\n", ["softmax", "causal_mask"], {}, []),
        (layer("Net", body=PASSES) + SOFTMAX, ["Net"], {}, []),
        (
            HEADS + "def main(): print(MultiHeadAttention())\n",
            ["MultiHeadAttention"],
            {"Head": "MultiHeadAttention"},
            [],
        ),
        (layer("Attention") + "class AttentionPlot:\n    def plot(self, x): print(x)\n", ["Attention"], {}, []),
        (layer("Attention") + "class TestAttention:\n    def test_it(self): Attention()\n", ["Attention"], {}, []),
        ("class Tokenizer:\n    def __call__(self, x): return x\n", [], {}, []),
        ("atencao = lambda q, k, v: q\n", ["atencao"], {}, []),
    ],
)
def test_attention_that_no_other_attention_uses_is_judged(tmp_path, text, judged, parts, wholes):
    assert selected(tmp_path, text) == (judged, parts, wholes)


def test_two_classes_that_use_each_other_are_judged_both(tmp_path):
    text = layer("AttnA", body="        return AttnB\n") + layer("AttnB", body="        return AttnA\n")
    assert selected(tmp_path, text) == (["AttnA", "AttnB"], {}, [])


def test_the_words_of_a_class_are_those_of_its_body(tmp_path):
    path = tmp_path / "homework.py"
    path.write_text(TOP + layer("A") + layer("B", "A", base="A", body=PASSES) + "f = lambda x: x.exp()\n")
    words = mentioned_words(load_file(path).own)
    assert words["B"] == {"super", "__init__", "A", "self", "a", "x"}
    assert {"softmax", "matmul", "mT"} <= words["A"]
    assert words["f"] == {"x", "exp"}
