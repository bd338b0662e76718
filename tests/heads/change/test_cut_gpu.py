"""Cuts on a GPU, where other kernels attend: the same as on the CPU, where they are compared with attention by hand."""

import copy

import pytest
import torch

import regard

pytestmark = pytest.mark.gpu
IDS = torch.arange(2 * 67).view(2, 67) * 7 % 97
CUTS = [
    {"heads": [(0, 1), (2, 3)]},
    {"heads": (1, 0), "to": "mean"},
    {"edges": [(66, 3), (5, 0)]},
    {"edges": [(40, 7)], "layers": [1]},
]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = regard.GPTConfig(vocab_size=97, context_length=128, num_layers=3, d_model=64, num_heads=4)
    return regard.GPT(config).eval()


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_cut_on_a_gpu_is_the_cut_on_a_cpu(model, cut):
    there = copy.deepcopy(model).cuda()
    with torch.no_grad():
        with regard.cut(model, **cut):
            expected = model(IDS)
        uncut = there(IDS.cuda())
        with regard.cut(there, **cut):
            logits = there(IDS.cuda())
        assert torch.equal(there(IDS.cuda()), uncut)
    torch.testing.assert_close(logits.cpu(), expected, atol=2e-4, rtol=2e-4)
    assert not torch.allclose(logits, uncut, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cut", CUTS[:3], ids=str)
def test_in_16_bits_a_cut_is_as_near_as_the_uncut_model(model, cut, dtype):
    there = copy.deepcopy(model).cuda().to(dtype)
    with torch.no_grad():
        with regard.cut(model, **cut):
            expected = model(IDS)
        with regard.cut(there, **cut), regard.watch(there) as seen:
            logits = there(IDS.cuda()).float().cpu()
        error = (there(IDS.cuda()).float().cpu() - model(IDS)).abs().max()
    assert (logits - expected).abs().max() <= 3 * error
    rows = [rows for layer in seen for rows in layer.weights().sum(-1)]
    for row in rows:
        torch.testing.assert_close(
            row.cpu().float(), torch.ones_like(row.cpu(), dtype=torch.float32), atol=1e-2, rtol=0
        )


def test_a_model_writes_under_a_cut_what_its_forwards_say(model):
    there = copy.deepcopy(model).cuda()
    ids = IDS[:1, :11].cuda()
    with torch.no_grad(), regard.cut(there, [(0, 1), (1, 2), (2, 0)]):
        written = there.generate(ids, max_new_tokens=7, temperature=0.0)
        expected = ids
        for _ in range(7):
            expected = torch.cat([expected, there(expected)[:, -1:].argmax(-1)], dim=1)
    assert torch.tensor(written).flatten().tolist() == expected[0, 11:].tolist()
