"""No step of the ladder, of the shipped layer or of GPT shows another operation than the one that ran."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

import regard
from regard import ladder, trace
from regard.steps import collecting
from regard.traces.torch_calls import TorchCalls

SIZES = {"d_in": 6, "d_out": 15, "context_length": 11, "dropout": 0.1, "num_heads": 3}
LAYERS = {
    "self-attention": lambda: ladder.SelfAttention(6, 5),
    "causal": lambda: ladder.CausalAttention(6, 5, 11, 0.1),
    "one head after the other": lambda: ladder.MultiHeadAttentionWrapper(6, 5, 11, 0.1, 3),
    "multi-head": lambda: ladder.MultiHeadAttention(**SIZES),
    "shipped": lambda: regard.MultiHeadAttention(**SIZES),
    "shipped, grouped": lambda: regard.MultiHeadAttention(**SIZES, num_kv_heads=1, qkv_bias=True),
}
# How the text of an operation shows which function ran; any other function is shown by its own name.
SIGN = {
    "matmul": " @ ",
    "__matmul__": " @ ",
    "__truediv__": " / ",
    "div": " / ",
    "__mul__": (" × ", " / √"),
    "mul": (" × ", " / √"),
    "__add__": " + ",
    "add": " + ",
    "linear": ("W_query(", "W_key(", "W_value(", "out_proj("),
}


class Results(TorchFunctionMode):
    """The name of the function that made each tensor, noted independently of what a trace does."""

    def __init__(self):
        super().__init__()
        self.made_by = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.made_by.append((result, func.__name__))
        return result

    def of(self, value):
        return next((name for tensor, name in reversed(self.made_by) if tensor is value), None)


def functions_that_ran(layer, x):
    """For each step, in order: its name, and the function that made its tensor."""
    ran, results = [], Results()
    with collecting(lambda name, value, *_: ran.append((name, results.of(value)))), results:
        layer(x)
    return ran


def derived(layer, x):
    """For each step, in order: its name, and the operation as the calls tell it, whatever text the step gives."""
    texts, calls = [], TorchCalls(layer)
    with collecting(lambda name, value, *_: texts.append((name, calls.labels.name(value, name)))), calls:
        layer(x)
    return texts


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_every_operation_shows_the_function_that_ran(layer):
    layer, x = layer(), torch.randn(2, 7, 6)
    ran, texts = functions_that_ran(layer, x), derived(layer, x)
    assert [name for name, _ in texts] == [name for name, _ in ran]
    assert len(ran) >= 8
    for (name, function), (_, text) in zip(ran, texts, strict=True):
        signs = SIGN.get(function, f"{function}(")
        signs = (signs,) if isinstance(signs, str) else signs
        assert text in ("input", "x") if function is None else any(sign in text for sign in signs), (name, text)


@pytest.mark.parametrize("rung", [name for name in LAYERS if "shipped" not in name])
def test_the_ladder_writes_no_operation_by_hand(rung):
    given, layer = [], LAYERS[rung]()
    with collecting(lambda name, value, operation, why: given.append(operation)):
        layer(torch.randn(2, 7, 6))
    assert set(given) == {""}


def test_the_first_rung_reads_as_its_formula():
    with trace() as t:
        ladder.simplified_attention(ladder.VECTORS)
    assert [s.operation for s in t] == ["input", "x @ x.mT", "softmax(scores)", "weights @ x"]


def test_the_last_rung_reads_as_its_code():
    t = trace(LAYERS["multi-head"](), torch.randn(2, 7, 6))
    assert {s.name: s.operation for s in t} == {
        "x": "input",
        "queries": "W_query(x)",
        "keys": "W_key(x)",
        "values": "W_value(x)",
        "split": "view(2, 7, 3, 5)",
        "split keys": "view(2, 7, 3, 5)",
        "split values": "view(2, 7, 3, 5)",
        "transpose": "transpose(1, 2)",
        "transpose keys": "transpose(1, 2)",
        "transpose values": "transpose(1, 2)",
        "scores": "queries @ keys.mT",
        "mask": "masked_fill(mask, −∞)",
        "scaled": "scores / √5",
        "weights": "softmax(scaled)",
        "dropout": "dropout(p=0.1)",
        "context": "weights @ values",
        "back": "transpose(1, 2)",
        "concat": "contiguous().view(2, 7, 15)",
        "out": "out_proj(concat)",
    }


def test_the_shipped_layer_reads_as_its_code():
    texts = dict(derived(LAYERS["shipped"](), torch.randn(2, 7, 6)))
    expected = {
        "split": "view(2, 7, 3, 5)",
        "transpose": "transpose(1, 2)",
        "scores": "queries @ keys.mT",
        "scaled": "scores / √5",
        "context": "weights @ values",
        "back": "transpose(1, 2)",
        "concat": "flatten(2)",
        "out": "out_proj(concat)",
    }
    assert {name: texts[name] for name in expected} == expected


def test_gpt_reads_as_its_code():
    config = regard.GPTConfig(vocab_size=31, context_length=13, num_layers=1, d_model=12, num_heads=3)
    t = trace(regard.GPT(config), torch.arange(5)[None])
    texts = {s.name: s.operation for s in t}
    expected = {
        "tokens": "input",
        "token vectors": "token_embedding(tokens)",
        "embeddings": "token vectors + position vectors",
        "attention norm": "attention_norm(embeddings)",
        "attended": "embeddings + out",
        "second norm": "feed_forward_norm(attended)",
        "feed-forward": "down(gelu(up(second norm)))",
        "block out": "attended + feed-forward",
        "final norm": "final_norm(block out)",
        "logits": "linear(final norm, token_embedding.weight)",
    }
    assert {name: texts[name] for name in expected} == expected
