"""Atlases as files: what is saved is read again, equal atlases make equal files, and hostile ones are refused."""

import json

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

import regard
from heads.atlas.corpora import Letters, corpus, kept, same_sums, small_model

TEXTS = corpus(6)


@pytest.fixture(scope="module")
def atlas():
    return regard.atlas(small_model(), TEXTS, tokenizer=Letters())


@pytest.fixture(scope="module")
def saved(atlas, tmp_path_factory):
    path = tmp_path_factory.mktemp("atlas") / "atlas.safetensors"
    atlas.save(path)
    return path


def test_what_is_saved_is_read_again(atlas, saved):
    found = regard.load_atlas(saved)
    for layer, other in zip(found.layers, atlas.layers, strict=True):
        assert all(torch.equal(tensor, getattr(other.sums, name)) for name, tensor in vars(layer.sums).items())
        assert layer.samples.groups.keys() == other.samples.groups.keys()
    assert kept(found) == kept(atlas)
    assert str(found) == str(atlas)
    assert [str(one) for one in found[1, 2].examples()] == [str(one) for one in atlas[1, 2].examples()]
    assert (found.model, found.weights, found.texts, found.tokens) == (
        atlas.model, atlas.weights, atlas.texts, atlas.tokens
    )  # fmt: skip


def test_an_atlas_that_was_saved_goes_on(atlas, saved):
    model = small_model()
    one, two = (
        regard.atlas(model, TEXTS, tokenizer=Letters(), start=start) for start in (atlas, regard.load_atlas(saved))
    )
    same_sums(one, two)
    assert kept(one) == kept(two)


def test_equal_atlases_make_equal_files(atlas, saved, tmp_path):
    regard.load_atlas(saved).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def damaged(saved, path, header=None, tensors=None, name="regard.atlas"):
    """The file with other values in its header, or other tensors."""
    with safetensors.safe_open(str(saved), framework="pt") as file:
        plain = dict(file.metadata())
    own = load_file(saved) | (tensors or {})
    document = json.loads(plain["regard.atlas"])
    for change in [header] if header else []:
        change(document)
    save_file({key: one for key, one in own.items() if one is not None}, path, {name: json.dumps(document)})
    return path


FULL = torch.full
HEADERS = {
    "another format": ({"name": "regard.seen"}, None, None, "no atlas of regard"),
    "another version": ({}, lambda d: d.update(version=9), None, "has version 9 and this regard reads 1"),
    "no layers": ({}, lambda d: d.pop("layers"), None, "does not describe an atlas"),
    "heads of a text": ({}, lambda d: d["layers"][0].update(heads="x"), None, "heads is 'x', no size"),
    "too many heads": ({}, lambda d: d["layers"][0].update(heads=10**9), None, "heads is 1000000000, no size"),
    "an escape": ({}, lambda d: d["layers"][0].update(name="\x1b[2J"), None, "layer 0 has no heads or name"),
    "a model": ({}, lambda d: d.update(model="\x1b[2J"), None, "the model's name is no short text"),
    "statistics": ({}, lambda d: d.update(statistics=["entropy"]), None, "other statistics or roles"),
    "words": ({}, lambda d: d["words"].__setitem__(0, [1, 2, 3]), None, "words are not tokens"),
    "a negative count": ({}, lambda d: d.update(texts=-1), None, "texts is -1, no size"),
    "a missing tensor": ({}, None, {"0.bins": None}, "0.bins is missing"),
    "another shape": ({}, None, {"0.jobs": torch.zeros(3, 2, dtype=torch.long)}, r"0.jobs is \(3, 2\) and should be"),
    "another type": ({}, None, {"0.jobs": torch.zeros(3, 9)}, "jobs is torch.float32 and should be torch.int64"),
    "NaN": ({}, None, {"1.even": FULL((3, 9, 2), torch.nan, dtype=torch.float64)}, "even has NaN or infinity"),
    "counts below 0": ({}, None, {"1.jobs": FULL((3, 9), -1)}, "jobs has -1, which is not between 0 and"),
    "huge counts": ({}, None, {"1.jobs": FULL((3, 9), 1 << 62)}, "which is not between 0 and"),
    "steps": ({}, None, {"0.steps": torch.zeros(3, 4, dtype=torch.long)}, "steps and places do not fit"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_file_with_other_values_is_refused_by_name(saved, tmp_path, name):
    others, header, tensors, message = HEADERS[name]
    path = damaged(saved, tmp_path / "damaged.safetensors", header, tensors, **others)
    with pytest.raises(ValueError, match=message) as refused:
        regard.load_atlas(path)
    assert str(refused.value).startswith(str(path))
    assert str(refused.value).endswith("Nothing was loaded.")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("layer", 2, r"examples\.layer has 2, which is not between 0 and 1"),
        ("head", 3, r"there is no head [01]\.3"),
        ("group", 22, r"examples\.group has 22"),
        ("key", -5, r"examples\.key has -5"),
        ("token", -1, r"examples\.token has -1"),
        ("strength", torch.nan, r"examples\.strength has NaN or infinity"),
        ("weights", 3.0, r"examples\.weights has 3"),
        ("pieces", 1000, r"examples\.pieces has 1000"),
    ],
)
def test_examples_that_cannot_be_are_refused(saved, tmp_path, column, value, message):
    tensor = load_file(saved)[f"examples.{column}"].clone()
    tensor.view(-1)[0] = value
    path = damaged(saved, tmp_path / "damaged.safetensors", None, {f"examples.{column}": tensor})
    with pytest.raises(ValueError, match=message):
        regard.load_atlas(path)


def test_a_file_that_is_cut_off_or_is_none_is_refused(saved, tmp_path):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"is damaged or no safetensors file .* Nothing was loaded\."):
        regard.load_atlas(path)
    with pytest.raises(ValueError, match=r"nowhere is not a file; atlas\.save\('.*nowhere'\) writes one"):
        regard.load_atlas(tmp_path / "nowhere")
