from random import Random

import pytest
import torch
from torch import nn

import regard
from benchmarks.check.cases import pairs, right_layers, wrong_layers
from benchmarks.check.run import GROUPED_SIZES, SEEDS, SIZES
from regard.school.check.check import check_subject
from regard.school.check.compare.constructor_arguments import shares_key_heads
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from school.check.learner import Learner, checked, edited
from school.check.right_attention import RIGHT as ATTENTION
from school.check.right_inputs import RIGHT as INPUTS
from school.check.right_packages import PACKAGES
from school.check.right_weights import RIGHT as WEIGHTS

KNOWN = wrong_layers()
# Each size with one seed in make slow, with all of them in make torture.
TURNS = [0, *(pytest.param(turn, marks=pytest.mark.torture) for turn in range(1, len(SEEDS)))]


def with_seeds(sizes, turn):
    return [(size, SEEDS[(i + turn) % len(SEEDS)]) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("layer", [*ATTENTION, *WEIGHTS, *INPUTS], ids=lambda layer: layer.__name__)
def test_a_right_layer_passes(layer):
    assert regard.check(layer).mistakes == []


@pytest.mark.parametrize("layer", right_layers())
def test_the_layers_of_the_corpus_are_right_as_they_stand(layer, tmp_path):
    assert checked(right_layers()[layer], tmp_path).mistakes == []


@pytest.mark.parametrize("case", KNOWN[1::7], ids=lambda case: f"{case.names[0]} in {case.layer}")
def test_a_known_mistake_is_named_alone(case, tmp_path):
    verdict = checked(case.source, tmp_path)
    assert any(one.name.startswith(case.names[0]) for one in verdict.findings)
    assert all(one.name.startswith(case.names[0]) for one in verdict.mistakes)


@pytest.mark.slow
def test_both_mistakes_of_a_pair_are_named_in_nine_of_ten(tmp_path):
    missed = []
    for case in Random(1).sample(pairs(), 10):
        names = [one.name for one in checked(case.source, tmp_path).findings]
        both = all(any(name.startswith(one) for name in names) for one in case.names)
        missed += [] if both else [f"{case.names} in {case.layer}: {names}"]
    assert len(missed) <= 1, missed


@pytest.mark.parametrize("name", PACKAGES)
def test_a_module_of_a_package_is_right_and_stays_as_it_is(name):
    module = PACKAGES[name](15, 3)
    before = {key: t.clone() for key, t in module.state_dict().items()}
    assert regard.check(module).mistakes == []
    assert all(t.equal(before[key]) for key, t in module.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_module_of_a_package_is_right_at_five_sizes(name, turn):
    for (width, heads), seed in with_seeds([(15, 3), (20, 4), (22, 2), (35, 7), (33, 3)], turn):
        subject = LocalSubject(PACKAGES[name](width, heads))
        assert check_subject(subject, Request(seed=seed)).mistakes == [], (width, heads, seed)


@pytest.mark.slow
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("layer", [*ATTENTION, *WEIGHTS, *INPUTS], ids=lambda layer: layer.__name__)
def test_a_right_layer_passes_at_five_sizes(layer, turn):
    subject = LocalSubject(layer)
    every = GROUPED_SIZES if shares_key_heads(subject.described, "") else SIZES
    for sizes, seed in with_seeds(every, turn):
        assert check_subject(subject, Request(probes=(sizes,), seed=seed)).mistakes == [], (sizes, seed)


def test_the_attention_inside_a_block_is_checked():
    class SlowAttention(Learner):
        def forward(self, x):
            return super().forward(x) * 1.0

    class Block(nn.Module):
        def __init__(self, d_model, num_heads, context_length):
            super().__init__()
            self.attn = SlowAttention(d_model, d_model, context_length, 0.0, num_heads)
            self.ff = nn.Sequential(nn.Linear(d_model, 17), nn.GELU(), nn.Linear(17, d_model))
            self.norm = nn.LayerNorm(d_model)

        def forward(self, x):
            x = x + self.attn(self.norm(x))
            return x + self.ff(self.norm(x))

    verdict = regard.check(Block)
    assert verdict.is_right
    assert verdict.notes == ["The wiring of Block is right: x + attention(norm(x)), then x + feed_forward(norm(x))."]


def test_a_class_without_weights_is_the_simplified_rung_if_it_takes_x_alone(tmp_path):
    assert checked(right_layers()["simplified_class"], tmp_path).findings == []
    scaled = edited("simplified_class", "(scores)", "(scores / x.shape[-1] ** 0.5)")
    assert [one.name for one in checked(scaled, tmp_path).mistakes] == ["scaled where nothing is"]
    of_three = scaled.replace("forward(self, x):", "forward(self, x, k, v):").replace("(weights, x)", "(weights, v)")
    of_three = of_three.replace("x.permute", "k.permute")
    assert checked(of_three, tmp_path).is_right


def test_groups_of_a_configuration_are_checked_with_fewer_key_heads(tmp_path):
    assert checked(right_layers()["grouped_expand"], tmp_path).task.endswith("6 heads of 7 that share 3 key heads")


def test_a_mistake_has_its_numbers_its_line_and_its_reason(tmp_path):
    (finding,) = checked(edited("textbook", "self.head_dim**0.5", "self.d_out**0.5"), tmp_path).mistakes
    assert finding.says == "The scores are divided by √21, the width of all heads together; it is √head_dim = √7."
    assert finding.code == "attn_weights = torch.softmax(attn_scores / self.d_out**0.5, dim=-1)"
    assert finding.example.seen.shape == (3, 3)
    assert finding.fix == "scores = scores / head_dim**0.5"


def test_the_caller_decides_whether_it_must_be_causal(tmp_path):
    source = edited("loop", "            s = s.masked_fill(future, -torch.inf)\n", "")
    assert [one.name for one in checked(source, tmp_path).mistakes] == ["no causal mask"]
    assert checked(source, tmp_path, causal=False).is_right


def test_threads_and_seed_are_as_before():
    torch.set_num_threads(2)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    regard.check(Learner)
    assert torch.get_num_threads() == 2
    assert torch.random.get_rng_state().equal(before)


def test_what_is_no_layer_is_refused():
    with pytest.raises(
        ValueError, match=r"takes a class, a module or a function of yours, not a tensor of shape \(3,\)"
    ):
        regard.check(torch.ones(3))


def test_dropout_that_nan_hides_is_not_said_to_be_missing(tmp_path):
    source = edited("batched", "scores + self.mask", "scores - self.mask").replace(
        "y.transpose(1, 2).reshape(B, T, E)", "y.reshape(B, T, E)"
    )
    names = [one.name for one in checked(source, tmp_path).mistakes]
    assert sorted(names) == ["merge without transposing back", "wrong sign of infinity"]
