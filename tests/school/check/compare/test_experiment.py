import pytest
import torch
from torch import nn

from regard.school.check.check import check
from regard.school.check.compare.call_forms import expects_causal
from regard.school.check.compare.constructor_arguments import (
    GROUPED,
    KV_HEADS,
    OTHER_GROUPED,
    OTHERS,
    PROBES,
    ProbeSizes,
    takes,
)
from regard.school.check.compare.experiment import experiment, known_weights
from regard.school.check.learner_code.subject import LocalSubject
from regard.school.check.request import Request
from sampled import quick_every
from school.check.learner import Learner, checked, edited, subject_of
from school.check.right_attention import RIGHT as ATTENTION
from school.check.right_inputs import RIGHT as INPUTS
from school.check.right_inputs import Grouped
from school.check.right_weights import RIGHT as WEIGHTS

SIZES = (
    *(
        PROBES[0],
        OTHERS[0],
        ProbeSizes(29, 2, 11, 17, 3, 7),
        ProbeSizes(11, 7, 5, 19, 1, 13),
        ProbeSizes(5, 1, 3, 2, 2, 2),
    ),
)


@pytest.mark.parametrize("layer", quick_every(4, [*ATTENTION, *WEIGHTS, *INPUTS], lambda layer: layer.__name__))
def test_a_right_layer_is_the_formula_at_five_sizes_with_three_seeds(layer):
    subject = LocalSubject(layer)
    grouped = takes(subject.described, KV_HEADS)
    for number, sizes in enumerate((GROUPED, OTHER_GROUPED) if grouped else SIZES):
        for seed in range(3) if number < 2 else (number,):
            if layer.__name__ == "Numbers" and sizes.B * sizes.T > 12:
                continue  # slow by design
            assert experiment(subject, sizes, seed, Request(), most=0).is_right, (sizes, seed)


def test_a_layer_that_says_nothing_may_hide_the_future_or_not():
    class Attention(nn.Module):
        def __init__(self, d_model, num_heads, hides=True):
            super().__init__()
            self.num_heads, self.hides = num_heads, hides
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_model) for _ in range(3))

        def forward(self, x):
            q, k, v = (
                W(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                for W in (self.q_proj, self.k_proj, self.v_proj)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.hides)
            return y.transpose(1, 2).flatten(2)

    for hides in (True, False):
        result = experiment(LocalSubject(Attention), PROBES[0], 0, Request(own={"hides": hides}))
        assert result.is_right
        assert result.case.causal is hides
    asked = experiment(LocalSubject(Attention), PROBES[0], 0, Request(causal=False))
    assert not asked.is_right


def test_a_context_length_or_a_stored_mask_or_a_name_says_that_it_is_causal():
    subject = LocalSubject(Learner)
    result = experiment(subject, PROBES[0], 0, Request())
    assert expects_causal(subject, result.observation.contents, Request()) is True
    assert expects_causal(subject, result.observation.contents, Request(causal=False)) is False


def test_known_weights_leave_masks_alone():
    contents = {
        "parameters": [
            {"name": "W", "shape": [3, 5], "is_mask": False},
            {"name": "m", "shape": [5, 5], "is_mask": True},
        ]
    }
    assert {name: tuple(t.shape) for name, t in known_weights(contents, 0).items()} == {"W": (3, 5)}


def test_an_argument_of_an_unknown_name_is_found_by_trial():
    class Odd(Learner):
        def __init__(self, d_in, d_out, groove):
            super().__init__(d_in, d_out, 11, 0.0, groove)

    result = experiment(LocalSubject(Odd), PROBES[0], 0, Request())
    assert result.is_right
    assert result.built.sizes == {"d_in": 13, "d_out": 21, "groove": 3}


def test_an_argument_that_no_trial_finds_is_asked_for():
    class Odd(Learner):
        def __init__(self, d_in, d_out, groove):
            assert groove == "a secret"
            super().__init__(d_in, d_out, 11, 0.0, 3)

    verdict = check(Odd)
    assert "its constructor takes groove, and nothing is known of that" in verdict.problem
    assert check(Odd, arguments={"groove": "a secret"}).is_right


def test_projections_that_cannot_be_told_are_asked_for():
    class Many(nn.Module):
        def __init__(self, d_model):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(7))

        def forward(self, x):
            return x

    result = experiment(LocalSubject(Many), PROBES[0], 0, Request())
    assert "which of its parameters are the projections?" in result.unread


def test_float32_is_used_where_a_layer_insists_on_it():
    class Insists(Learner):
        def forward(self, x):
            return super().forward(x) @ torch.eye(21)

    result = experiment(LocalSubject(Insists), PROBES[0], 0, Request())
    assert result.dtype == "float32"
    assert result.is_right


def test_a_shape_that_is_no_output_is_told(tmp_path):
    source = edited("loop", "return self.wo(joined)", "return self.wo(joined).mean(1)")
    result = experiment(subject_of(source, tmp_path), PROBES[0], 0, Request())
    says = "It returns (2, 21) for x of 2 texts and 5 tokens; the output must be (2, 5, width)."
    assert result.failed.message == says
    assert [one.says for one in checked(source, tmp_path).mistakes] == [says]


def test_grouped_heads_are_read_from_the_constructor():
    result = experiment(LocalSubject(Grouped), GROUPED, 0, Request())
    assert result.is_right
    assert len(result.case.projections["W_key"].weight) == 3 * 7


def test_a_seed_of_the_request_gives_other_weights_and_inputs():
    subject = LocalSubject(ATTENTION[0])
    first, same, other = (experiment(subject, PROBES[0], 0, Request(seed=seed)) for seed in (3, 3, 4))
    assert first.tensors
    for name, value in first.tensors.items():
        torch.testing.assert_close(same.tensors[name], value, rtol=0, atol=0)
        assert not value.is_floating_point() or not torch.equal(other.tensors[name], value), name
    assert first.is_right
    assert other.is_right


@pytest.fixture
def learner():
    return experiment(LocalSubject(Learner), PROBES[0], 0, Request())


def test_a_layer_can_be_called_several_times_and_gives_its_outputs(learner):
    assert learner.is_right
    assert [tuple(one.shape) for one in learner.outputs(learner.run(2))] == [(2, 5, 21)] * 2


def test_with_dropout_the_calls_of_dropout_are_seen(learner):
    assert [one.p for one in learner.with_dropout(1, train=True).dropped] == [0.5]
    assert learner.seen.with_lines
