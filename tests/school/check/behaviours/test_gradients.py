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
