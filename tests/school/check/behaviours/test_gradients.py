import pytest
import torch
from torch import nn

from regard.school.check.check import check
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


class ThirdUnused(nn.Module):
    """The bias of the keys is added to the values, too."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d = num_heads, d_model
        self.in_weight = nn.Parameter(torch.randn(3 * d_model, d_model))
        self.in_bias = nn.Parameter(torch.zeros(3 * d_model))

    def part(self, x, i):
        weight = self.in_weight.narrow(0, i * self.d, self.d)
        bias = self.in_bias.narrow(0, min(i, 1) * self.d, self.d)
        return nn.functional.linear(x, weight, bias).unflatten(-1, (self.h, -1)).transpose(-3, -2)

    def forward(self, x):
        q, k, v = (self.part(x, i) for i in range(3))
        return ((q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v).transpose(-3, -2).flatten(-2)


class IdleNorm(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_in, d_out) for _ in range(3))
        self.norm = nn.LayerNorm(d_out)

    def forward(self, x):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        return (q @ k.mT / k.shape[-1] ** 0.5).softmax(-1) @ v


def test_a_third_of_a_packed_bias_that_changes_nothing_is_told():
    assert check(ThirdUnused).mistakes[0].says == "The last third of in_bias changes nothing."


def test_a_norm_that_is_not_used_is_no_mistake_and_is_named():
    verdict = check(IdleNorm)
    assert verdict.is_right
    assert verdict.not_checked == ["parameters: norm.weight changes nothing: a norm that is made and not used"]
