"""Files of effects are checked before they are used."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import regard
from heads.measured import measured
from regard.heads.change.effect_files import load_measured, save_measured


@pytest.fixture
def changed(tmp_path):
    """A file of effects whose header or tensors are changed."""

    def write(header=None, metadata=None, tensors=None):
        path = tmp_path / "effects.safetensors"
        save_measured(path, measured(texts=2, chosen=[2]))
        with safe_open(path, "pt") as file:
            told = file.metadata()
        told["effects"] = json.dumps(json.loads(told["effects"]) | (header or {}))
        save_file(load_file(path) | (tensors or {}), path, told | (metadata or {}))
        return path

    return write


def test_everything_is_read_back(tmp_path):
    before = measured(texts=2, chosen=[1])
    save_measured(tmp_path / "new" / "effects.safetensors", before)
    after = load_measured(tmp_path / "new" / "effects.safetensors")
    torch.testing.assert_close(list(after.changes), list(before.changes), equal_nan=True, atol=0, rtol=0)
    torch.testing.assert_close(list(after.losses), list(before.losses), equal_nan=True, atol=0, rtol=0)
    for name in ("cuts", "chosen", "heads", "roles", "texts", "to"):
        assert getattr(after, name) == getattr(before, name), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": {"cuts": [[[0, 2]]]}}, r"there is no head 0\.2"),
        ({"header": {"cuts": [[]]}}, "a cut has no heads"),
        ({"header": {"cuts": [[[0, 1]]]}}, r"changes.0 is \(4, 3\) and should be \(1, 3\)"),
        ({"header": {"count": 3}}, "losses.2 is missing"),
        ({"header": {"count": -1}}, "count is -1, no size"),
        ({"header": {"chosen": [[7], [0]]}}, "no such token"),
        ({"header": {"texts": []}}, "the texts do not have as many tokens as the losses"),
        ({"header": {"roles": 3}}, "the header does not describe effects"),
        ({"metadata": {"version": "7"}}, "the effects have version 7 and this regard reads 1; update regard"),
        ({"metadata": {"format": "regard.seen"}}, "holds no effects"),
        ({"header": {"heads": [10**9, 2]}}, "heads is 1000000000, no size"),
        ({"header": {"count": 0}}, "there are no layers or no texts"),
        ({"header": {"to": "\x1b[2J"}}, "a role, or what was handed over, is no short text"),
        ({"header": {"roles": [[0, 0, "x" * 501]]}}, "a role, or what was handed over, is no short text"),
        ({"tensors": {"losses.0": torch.full((3,), 1e30, dtype=torch.float64)}}, r"losses.0 has 1e\+30, which is not"),
        ({"tensors": {"losses.0": torch.zeros(3)}}, "losses.0 is torch.float32 and should be float64"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(changed, change, message):
    with pytest.raises(ValueError, match=rf"effects.safetensors: .*{message}.*Nothing was loaded"):
        load_measured(changed(**change))


def test_a_missing_or_damaged_file_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"is not a file; effects\.save"):
        regard.load_effects(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"bad\.safetensors is damaged or no safetensors file"):
        regard.load_effects(tmp_path / "bad.safetensors")
