import pytest

from school.check.learner import broken, checked, edited, names

LOST = [
    ("weights = scores.softmax(-1)", "weights = scores.softmax(-1).detach()"),
    ("weights = scores.softmax(-1)", "weights = torch.from_numpy(scores.detach().numpy()).softmax(-1)"),
    ("self.v(source)))", "self.v(source).data))"),
    ("self.drop = nn", "self.k.weight.requires_grad_(False)\n        self.drop = nn"),
]


@pytest.mark.parametrize(("old", "new"), LOST)
def test_weights_that_no_gradient_reaches_are_named_with_the_line(old, new, tmp_path):
    verdict = broken(tmp_path, old, new)
    assert names(verdict) == ["gradient does not reach the weights"]
    assert verdict.mistakes[0].code in new or new in verdict.mistakes[0].code


def test_an_input_that_no_gradient_reaches_is_told(tmp_path):
    verdict = broken(tmp_path, "        source = x if", "        x = x.detach()\n        source = x if")
    assert names(verdict) == ["gradient does not reach x"]


def test_a_gradient_of_something_else_is_wrong(tmp_path):
    half = "weights = scores.softmax(-1)\n        weights = (weights + weights.detach()) / 2"
    verdict = broken(tmp_path, "weights = scores.softmax(-1)", half)
    assert names(verdict) == ["wrong gradient"]
    assert "its gradient says" in verdict.mistakes[0].says


def test_a_layer_for_inference_is_not_asked_for_gradients(tmp_path):
    doc = 'class Attention(nn.Module):\n    """For inference only."""\n'
    verdict = broken(
        tmp_path, "class Attention(nn.Module):\n", doc, "        return", "        y = y.detach()\n        return"
    )
    assert verdict.is_right
    assert verdict.not_checked == ["gradients: it is for inference only"]


def test_a_layer_that_breaks_its_own_gradient_is_told(tmp_path):
    breaks = "weights = scores.softmax(-1)\n        weights.mul_(1.0)"
    assert names(broken(tmp_path, "weights = scores.softmax(-1)", breaks)) == ["gradient fails"]


@pytest.mark.parametrize("layer", ["textbook", "fused", "einsum", "loop"])
def test_right_gradients_are_checked_in_layers_of_every_style(layer, tmp_path):
    verdict = checked(edited(layer, "", ""), tmp_path)
    assert "gradients" in verdict.checked
    assert verdict.is_right


def test_weights_that_are_frozen_beside_adapters_are_meant(tmp_path):
    frozen = "self.low_rank = nn.Linear(d_model, d_model)\n        self.k.requires_grad_(False)\n        self.drop = nn"
    verdict = broken(tmp_path, "self.drop = nn", frozen, "self.q(x),", "self.q(x) + self.low_rank(x),")
    assert names(verdict) == []


LATENTS = """import torch
from torch import nn

class LatentReadout(nn.Module):
    def __init__(self, n_latents, d_latent, d_input, n_heads):
        super().__init__()
        self.latents, self.n_heads = nn.Parameter(torch.randn(n_latents, d_latent)), n_heads
        self.q, self.k, self.v = (nn.Linear(d, d_latent) for d in (d_latent, d_input, d_input))

    def forward(self, x):
        q, k, v = self.q(self.latents).expand(len(x), -1, -1), self.k(x).detach(), self.v(x)
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for t in (q, k, v))
        return ((q @ k.mT / k.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


def test_weights_that_no_gradient_reaches_are_told_of_a_layer_that_nothing_explains(tmp_path):
    assert names(checked(LATENTS, tmp_path)) == ["gradient does not reach the weights"]
    assert checked(LATENTS.replace(".detach()", ""), tmp_path).status == "unchecked"
    meant = LATENTS.replace("q, k, v = self.q", "# keys are frozen: stop-gradient\n        q, k, v = self.q")
    assert checked(meant, tmp_path).status == "unchecked"
