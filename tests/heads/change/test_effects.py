"""Effects by number, in order, as JSON."""

import json
import math

import pytest
import torch

from heads.measured import measured
from regard.heads.change.effects import Effects, load_effects

NAN = math.nan


def test_an_effect_is_found_by_head_layer_or_heads():
    effects = Effects(measured())
    assert (effects[0, 1].name, effects[0, 1].role, effects[0, 1].loss) == ("0.1", "previous token", 0.5)
    assert (effects[1].name, effects[1].role, effects[1].loss) == ("layer 1", "", -1.0)
    assert (effects[(1, 2), (0, 1)].name, effects[(0, 1), (1, 2)].loss) == ("0.1+1.2", 0.0)
    torch.testing.assert_close(effects[1, 0].per_token[0], torch.tensor([NAN, 3, 1]).double(), equal_nan=True)
    assert [one.name for one in effects] == ["0.1", "1.0", "layer 1", "0.1+1.2"]
    assert list(effects.by_head()) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("key", "message"),
    [((1, 2), r"the effect of cutting 1\.2 was not measured; measured are 0\.1, 1\.0"), (2, "there is no layer 2")],
)
def test_an_effect_that_was_not_measured_says_what_was(key, message):
    with pytest.raises(KeyError, match=message):
        Effects(measured())[key]


def test_the_largest_cost_comes_first():
    assert [one.name for one in Effects(measured()).order()] == ["1.0", "0.1", "0.1+1.2", "layer 1"]


def test_the_log_probability_of_chosen_tokens_decides_the_order():
    effects = Effects(measured(chosen=[2]))
    assert [one.name for one in effects.order()] == ["1.0", "0.1", "layer 1", "0.1+1.2"]
    assert [one.logprob for one in effects] == [-0.75, -1.0, 0.5, 1.0]


def test_noise_is_the_standard_error_over_texts():
    effects = Effects(measured(texts=2))  # 2 and 4, of which the mean is 3 and the standard error 1
    assert (effects[1, 0].loss, effects[1, 0].noise, effects[1, 0].is_noise) == (3.0, 1.0, False)
    assert effects[(0, 1), (1, 2)].is_noise
    assert math.isnan(Effects(measured())[1, 0].noise)
    assert not Effects(measured())[1, 0].is_noise


def test_the_worst_token_is_that_whose_loss_grows_most():
    effects = Effects(measured(texts=2))
    assert effects[0, 1].worst() == (1, 2, 1.5)
    assert effects[0, 1].worst(text=0) == (0, 2, 0.75)
    assert effects.label(1, 2) == "sat"


def test_json_has_every_number_and_none_where_there_is_none():
    plain = json.loads(Effects(measured()).to_json())
    assert plain["loss"] == 2.5
    assert [one["name"] for one in plain["effects"]] == ["1.0", "0.1", "0.1+1.2", "layer 1"]
    assert plain["effects"][0] == {
        "name": "1.0",
        "heads": [[1, 0]],
        "role": "induction",
        "loss": 2.0,
        "noise": None,
        "logprob": None,
        "logprob_noise": None,
        "is_noise": False,
        "worst": {"text": 0, "token": 1, "loss": 3.0},
    }


def test_effects_are_saved_and_read_back(tmp_path):
    effects = Effects(measured(texts=2, chosen=[1, 2]))
    effects.save(tmp_path / "effects.safetensors")
    again = load_effects(tmp_path / "effects.safetensors")
    assert again.to_json() == effects.to_json()
    assert repr(again) == repr(effects)
