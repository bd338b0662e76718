"""Effects that are estimated by the gradient are the first order of those that are measured."""

import pytest
import torch

import regard

EPS = 1e-5
IDS = torch.randint(0, 4096, (19,), generator=torch.Generator().manual_seed(4))
HEADS = [(0, 2), (2, 1), (4, 3)]


def model():
    return regard.GPT.from_pretrained("tiny").double()


def contexts(made):
    with torch.no_grad(), regard.watch(made, values=True) as seen:
        made(IDS[None])
    return {head: seen[head].context[0] for head in HEADS}


@pytest.mark.parametrize("to", [0, "mean", "tensor"])
def test_estimates_are_derivatives_of_measured_effects(to):
    made, own = model(), contexts(model())
    other = {head: torch.randn_like(one) for head, one in own.items()}
    targets = {
        head: other[head] if to == "tensor" else one.mean(0).expand_as(one) if to == "mean" else torch.zeros_like(one)
        for head, one in own.items()
    }
    nearly = {head: one + EPS * (targets[head] - one) for head, one in own.items()}
    small = regard.effect(made, IDS, heads=HEADS, to=nearly, tokens=[5, 11])
    estimated = regard.effect(made, IDS, heads=HEADS, to=other if to == "tensor" else to, tokens=[5, 11], by="gradient")
    for head in HEADS:
        assert estimated[head].loss == pytest.approx(small[head].loss / EPS, rel=1e-2, abs=1e-5)
        assert estimated[head].logprob == pytest.approx(small[head].logprob / EPS, rel=1e-2, abs=1e-4)


def test_estimates_of_several_heads_add_up():
    made = model()
    together = regard.effect(made, IDS, heads=HEADS, pairs=[HEADS[:2]], layers=[4], by="gradient")
    assert together[(0, 2), (2, 1)].loss == pytest.approx(together[0, 2].loss + together[2, 1].loss)
    alone = regard.effect(made, IDS, by="gradient")
    assert together[4].loss == pytest.approx(sum(alone[4, head].loss for head in range(8)))


def test_estimates_are_kept_in_files_and_said_in_the_table(tmp_path):
    effects = regard.effect(model(), [IDS, IDS.flip(0)], heads=HEADS, to="mean", by="gradient")
    assert "cut to mean, estimated by the gradient" in " ".join(str(effects).split())
    assert "costs most" not in str(effects)
    assert effects[4, 3].worst() is None
    effects.save(tmp_path / "effects.json")
    again = regard.load_effects(tmp_path / "effects.json")
    assert [(one.loss, one.noise) for one in again] == [(one.loss, one.noise) for one in effects]


def test_gradients_and_training_mode_of_the_model_stay_as_they_are():
    made = model().train()
    regard.effect(made, IDS, heads=HEADS, by="gradient")
    assert made.training
    assert all(parameter.grad is None for parameter in made.parameters())


def test_another_way_to_measure_is_refused():
    with pytest.raises(
        ValueError, match=r"by='guess' is not known; effects are measured by=\"cut\", or estimated by=\"gr"
    ):
        regard.effect(model(), IDS, by="guess")
