"""Effects by number, in order, as JSON."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

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


def test_a_summary_is_plain_values_of_its_own():
    effects = Effects(measured())
    summary = effects.summary()
    assert list(summary) == ["loss", "to", "texts", "tokens", "chosen", "effects"]
    assert (effects.to, summary["to"]) == (effects.measured.to, effects.measured.to)
    assert json.loads(json.dumps(summary)) == summary  # lists, no tuples


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


def test_effects_are_saved_and_read_back_to_the_bit(tmp_path):
    before = measured(texts=2, chosen=[1, 2])
    before.changes[1][2, 1], before.changes[1][2, 2] = torch.inf, 0.1 + 0.2
    effects = Effects(before)
    effects.save(tmp_path / "new" / "effects.json")
    again = load_effects(tmp_path / "new" / "effects.json")
    after = again.measured
    torch.testing.assert_close(list(after.changes), list(before.changes), equal_nan=True, atol=0, rtol=0)
    torch.testing.assert_close(list(after.losses), list(before.losses), equal_nan=True, atol=0, rtol=0)
    for name in ("cuts", "chosen", "heads", "roles", "texts", "to"):
        assert getattr(after, name) == getattr(before, name), name
    assert again.to_json() == effects.to_json()
    assert repr(again) == repr(effects)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuts": [[[0, 2]]]}, r"there is no head 0\.2"),
        ({"cuts": [[]]}, "there are no cuts, or one has no heads"),
        ({"cuts": []}, "there are no cuts, or one has no heads"),
        ({"cuts": [[[0, 1]]]}, "text 0 has changes for 4 of 1 cuts"),
        ({"losses": []}, "this is no JSON text that describes effects"),
        ({"losses": [], "changes": []}, "there are no layers or no texts"),
        ({"losses": [[None, 1.0]] * 2}, "this is no JSON text that describes effects"),
        ({"losses": [[None, 1e30, 1.0]] * 2}, r"text 0 has 1e\+30, which is not"),
        ({"losses": [["a", "b", "c"]] * 2}, "this is no JSON text that describes effects"),
        ({"chosen": [[7], [0]]}, "no such token"),
        ({"chosen": [[1]]}, "this is no JSON text that describes effects"),
        ({"texts": []}, "the texts do not have as many tokens as the losses"),
        ({"roles": 3}, "this is no JSON text that describes effects"),
        ({"version": 7}, "the effects have version 7 and this regard reads 2"),
        ({"format": "regard.seen"}, "holds no effects"),
        ({"heads": [10**9, 2]}, "heads is 1000000000, no size"),
        ({"to": "\x1b[2J"}, "a role, or what was handed over, is no short text"),
        ({"roles": [[0, 0, "x" * 501]]}, "a role, or what was handed over, is no short text"),
        ({"more": [[]] * 200_000}, "it has too many values"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change, message, tmp_path):
    path = tmp_path / "effects.json"
    Effects(measured(texts=2, chosen=[2])).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=rf"effects.json: .*{message}.*Nothing was loaded"):
        load_effects(path)


def test_a_missing_damaged_or_old_file_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"is not a file; effects\.save"):
        load_effects(tmp_path / "none.json")
    for raw in (b"no", b"\xff\xfe", b"", b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(raw)
        with pytest.raises(ValueError, match=r"bad\.json: this is no JSON text that describes effects"):
            load_effects(tmp_path / "bad.json")
    save_file({"losses.0": torch.zeros(3)}, tmp_path / "old.safetensors", {"format": "regard.effects", "version": "1"})
    with pytest.raises(ValueError, match=r"an earlier regard wrote these effects, as safetensors; measure them again"):
        load_effects(tmp_path / "old.safetensors")
