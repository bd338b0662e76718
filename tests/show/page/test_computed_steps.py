"""Maps that a page computes again: the recipes give the numbers of the layer, and no other map has one."""

import base64
import gzip
import json
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.show.page.computed_steps import add_recipes, mixture, rounded
from regard.show.page.steps import LayerSizes, describe_steps

STEP_TENSORS_JS = Path(regard.__file__).parent / "show" / "page" / "js" / "data" / "step-tensors.js"
READ = """
import(process.argv[1]).then(async ({ loadSteps }) => {
  const { steps, H, blocks } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
  const tensors = await loadSteps(steps, H, async (key) => new Uint8Array(Buffer.from(blocks[key], "base64")));
  const numbers = tensors.map((one) => Array.from(one.values, (value) => (Number.isFinite(value) ? value : "-inf")));
  console.log(JSON.stringify(numbers));
});
"""


def follow(steps, trace, text, blocks):
    """The maps that have a recipe, and the mix, in float64 of the trace's own numbers."""
    values = [one.value[text].double() for one in trace]
    found = {}
    for number, document in enumerate(steps):
        recipe = document["made"]
        if recipe is None:
            continue
        parts = [values[one] for one in recipe["of"]]
        shared = (
            [one.repeat_interleave(document["sizes"][0] // one.shape[0], 0) for one in parts]
            if recipe["by"] == "product"
            else parts
        )
        if recipe["by"] == "product":
            made = shared[0] @ shared[1].mT
        elif recipe["by"] == "mask":
            T, S = document["sizes"][-2:]
            hidden = torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)
            if recipe["hidden"]:
                bits = np.unpackbits(
                    np.frombuffer(blocks[recipe["hidden"]], np.uint8), count=math.prod(document["sizes"])
                )
                hidden = torch.from_numpy(bits.astype(bool)).view(document["sizes"])
            made = parts[0].masked_fill(hidden, -torch.inf)
        elif recipe["by"] == "scale":
            made = parts[0] * recipe["factor"]
        elif recipe["by"] == "softmax":
            made = parts[0].softmax(-1).nan_to_num(0)
        elif recipe["by"] == "same":
            made = parts[0]
        else:
            assert recipe["by"] == "mix"
            weights, v = parts
            mixed = (weights @ v.repeat_interleave(weights.shape[0] // v.shape[0], 0)).transpose(0, 1).contiguous()
            made = mixed.as_strided(document["sizes"], document["strides"])
        found[trace.names[number]] = made
    return found


def described(layer, x, H, Hkv, text=0):
    trace = regard.trace(layer.eval(), x)
    blocks = {}
    sizes = LayerSizes(H, Hkv, x.shape[1], x.shape[1])
    steps, compressed = describe_steps(trace, sizes, text, "s")
    blocks = {key: gzip.decompress(content) for key, content in compressed.items()}
    return steps, trace, blocks


@pytest.mark.parametrize("causal", [True, False])
def test_every_map_of_a_layer_follows_from_its_queries_and_keys(causal):
    torch.manual_seed(3)
    layer = regard.MultiHeadAttention(30, 30, None, 0.1, 6, num_kv_heads=2, rotary=False, qk_norm=True, causal=causal)
    steps, trace, blocks = described(layer, torch.randn(2, 7, 30), 6, 2, text=1)
    found = follow(steps, trace, 1, blocks)
    assert {"scores", "scaled", "weights", "context", "back", "concat"} <= set(found)
    for name, made in found.items():
        torch.testing.assert_close(made.float(), trace[name][1], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_has_every_number_of_every_step_of_a_layer():
    torch.manual_seed(3)
    layer = regard.MultiHeadAttention(30, 30, None, 0.1, 6, num_kv_heads=2, rotary=False, qk_norm=True)
    steps, trace, blocks = described(layer, torch.randn(2, 7, 30), 6, 2, text=1)
    given = {"steps": steps, "H": 6, "blocks": {key: base64.b64encode(one).decode() for key, one in blocks.items()}}
    command = ["node", "-e", READ, STEP_TENSORS_JS.as_uri()]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    for document, numbers, step in zip(steps, json.loads(done.stdout), trace, strict=True):
        flat = torch.tensor([-torch.inf if one == "-inf" else one for one in numbers])
        read = flat.as_strided(document["sizes"], document["strides"])
        torch.testing.assert_close(read, step.value[1], rtol=5e-4, atol=5e-4)


def test_a_mask_of_its_own_is_stored_as_bits():
    torch.manual_seed(3)
    scores = torch.randn(1, 3, 5, 7)
    hidden = torch.rand(3, 5, 7) < 0.4
    with regard.trace() as trace:
        regard.step("scores", scores)
        regard.step("mask", scores.masked_fill(hidden, -torch.inf))
    steps, compressed = describe_steps(trace, LayerSizes(3, 3, 5, 7), 0, "s")
    blocks = {key: gzip.decompress(content) for key, content in compressed.items()}
    assert steps[1]["made"] == {"by": "mask", "of": [0], "hidden": "s.0", "factor": None}
    torch.testing.assert_close(follow(steps, trace, 0, blocks)["mask"].float(), trace["mask"][0])


def test_numbers_that_no_recipe_gives_are_stored():
    torch.manual_seed(3)
    with regard.trace() as trace:
        regard.step("scores", torch.randn(1, 3, 5, 7))
        regard.step("scaled", torch.randn(1, 3, 5, 7))
        regard.step("weights", torch.rand(1, 3, 5, 7))
        regard.step("dropout", torch.rand(1, 3, 5, 7))
    steps, _ = describe_steps(trace, LayerSizes(3, 3, 5, 7), 0, "s")
    assert [one["made"] for one in steps] == [None] * 4
    assert all(one["block"] for one in steps)


def test_weights_that_rounded_scores_would_change_are_stored():
    scores = torch.tensor([[[[4000.0, 4000.3]]]])
    with regard.trace() as trace:
        regard.step("scores", scores)
        regard.step("weights", scores.softmax(-1))
    steps, _ = describe_steps(trace, LayerSizes(1, 1, 1, 2), 0, "s")
    assert [one["made"] for one in steps] == [None, None]


def test_weights_that_12_bits_would_change_are_computed_from_15():
    torch.manual_seed(3)
    q, k = 7 * torch.randn(2, 1, 1, 31, 5)
    with regard.trace() as trace:
        regard.step("queries", q[0])
        regard.step("keys", k[0])
        scores = regard.step("scores", q @ k.mT)
        regard.step("weights", scores.softmax(-1))
    steps, compressed = describe_steps(trace, LayerSizes(1, 1, 31, 31), 0, "s")
    blocks = {key: gzip.decompress(content) for key, content in compressed.items()}
    assert [one["made"] and one["made"]["by"] for one in steps] == [None, None, "product", "softmax"]
    assert len(blocks) == 2
    made = {bits: (rounded(q, bits) @ rounded(k, bits).mT).softmax(-1) for bits in (12, 15)}
    assert float((made[12] - trace["weights"]).abs().max()) > 5e-4
    torch.testing.assert_close(made[15], trace["weights"], rtol=0, atol=5e-4)
    kept = torch.tensor([list(blocks["s.0"][155 * plane :][:155]) for plane in range(3)], dtype=torch.int32)
    bits = (kept[0] << 24) + (kept[1] << 16) + (kept[2] << 8)
    assert torch.equal(bits.view(torch.float32), rounded(q, 15).flatten())


def test_a_weight_that_is_no_number_is_never_computed():
    scores = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    weights = scores.softmax(-1)
    weights[..., 1, 0] = torch.nan
    with regard.trace() as trace:
        regard.step("scores", scores)
        regard.step("weights", weights)
    steps, _ = describe_steps(trace, LayerSizes(1, 1, 2, 2), 0, "s")
    assert steps[1]["made"] is None


def test_rounding_keeps_four_digits_and_what_is_no_number():
    numbers = torch.tensor([-torch.inf, torch.inf, torch.nan, 0.0, -0.0, 3.4e38, 1e-40, *torch.randn(97).tolist()])
    kept = rounded(numbers)
    torch.testing.assert_close(kept, numbers, rtol=2**-13, atol=1e-42, equal_nan=True)
    assert int((kept[7:].view(torch.int32) & 0x7FF).count_nonzero()) == 0


def test_a_context_that_is_something_else_is_no_mix():
    torch.manual_seed(3)
    with regard.trace() as trace:
        regard.step("values", torch.randn(1, 7, 6))
        regard.step("weights", torch.rand(1, 3, 7, 7))
        regard.step("context", torch.randn(1, 3, 7, 2))
    steps, _ = describe_steps(trace, LayerSizes(3, 3, 7, 7), 0, "s")
    assert [one["made"] for one in steps] == [None] * 3
    described_steps = [(document, step.value[0]) for document, step in zip(steps, trace, strict=True)]
    assert mixture(described_steps, 3) == []
    assert add_recipes(described_steps, 3, lambda content: "unused") == set()
