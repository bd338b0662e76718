"""The page's engine in Node.js, and what Python computes beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

import regard
from regard.gpt.portable import portable

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
WITHIN = 1e-5
TEXT = "Alice saw the cat, and the cat saw Alice. “Off with his head!” about once in a minute."
SMALL = {"vocab_size": 61, "context_length": 97, "num_layers": 2, "d_model": 24, "num_heads": 4}
LLAMA = {
    "rotary": regard.Rotary(base=500.0),
    "norm": "rms",
    "feed_forward": "swiglu",
    "bias": False,
    "qkv_bias": False,
    "d_ff": 37,
    "num_kv_heads": 2,
}


class Node:
    """A process that answers one request after the other; see js/run-model.mjs."""

    def __init__(self):
        script = Path(__file__).parent / "js" / "run-model.mjs"
        self.process = subprocess.Popen(
            ["node", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, do, **request):
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["result"]

    def load(self, model, directory, wasm):
        plan, weights = portable(model)
        (directory / "weights").write_bytes(weights)
        self.ask("load", plan=plan, weights=str(directory / "weights"), wasm=wasm)


def random_model(**options):
    torch.manual_seed(3)
    model = regard.GPT(regard.GPTConfig(**SMALL, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def weights_of(answer):
    """(layers, H, T, T): what a reading holds, with zeros for keys after their query."""
    rows = [[[torch.tensor(row, dtype=torch.float32) for row in head] for head in layer] for layer in answer["weights"]]
    return torch.stack([torch.stack([torch.nn.utils.rnn.pad_sequence(head, True) for head in layer]) for layer in rows])


def truth(model, ids, *cuts):
    """Weights and logits of a text, cut as each of these says."""
    with torch.no_grad(), ExitStack() as blocks:
        for cut in cuts:
            blocks.enter_context(regard.cut(model, **cut))
        seen = blocks.enter_context(regard.watch(model))
        logits = model(torch.tensor([ids]))
    return torch.stack([layer.weights()[0] for layer in seen]), logits[0, -1]


def assert_same(answer, weights, logits):
    torch.testing.assert_close(weights_of(answer), weights, atol=WITHIN, rtol=0)
    torch.testing.assert_close(torch.tensor(answer["logits"]), logits, atol=10 * WITHIN, rtol=1e-5)
